import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** RocketMQ's Java client over gRPC, one scenario a run; the same scenarios as the program in Python. */
public class GrpcClient {
    static final long PATIENCE_S = 60;
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    static ClientConfiguration configuration;

    public static void main(String[] words) throws Exception {
        configuration = ClientConfiguration.newBuilder()
            .setEndpoints(words[0]).setRequestTimeout(Duration.ofSeconds(10)).build();
        switch (words[1]) {
            case "sync": sync(); break;
            case "asynchronous": asynchronous(); break;
            case "filters": filters(); break;
            case "large": large(); break;
            case "push_all": pushAll(); break;
            case "fifo": fifo(); break;
            case "invisible": invisible(); break;
            case "delays": delays(); break;
            case "transactions": transactions(); break;
            case "dead_letter": deadLetter(); break;
            case "restart": restart(); break;
            default: throw new IllegalArgumentException(words[1]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // to close every client takes longer than the scenarios
    }

    // -- scenarios

    static void sync() throws Exception {
        Producer producer = producer("normal");
        SimpleConsumer consumer = simple("normal", "*", FilterExpressionType.TAG, "g");
        TreeSet<String> sent = new TreeSet<>();
        for (int i = 0; i < 20; i++) {
            Message message = message("normal", "" + i).setTag("tag").setKeys("key" + i)
                .addProperty("colour", "blue " + i).build();
            sent.add(producer.send(message).getMessageId().toString());
        }
        TreeSet<String> received = new TreeSet<>();
        Map<String, Object> read = new TreeMap<>();
        for (MessageView each : receiveAll(consumer, 20, true)) {
            received.add(each.getMessageId().toString());
            List<Object> told = new ArrayList<>(List.of(each.getTag().get()));
            told.addAll(each.getKeys());
            told.add(each.getProperties().get("colour"));
            told.add(each.getDeliveryAttempt());
            read.put(body(each), told);
        }
        say("ids", sent.size(), "same", sent.equals(received), "read", read);
    }

    static void asynchronous() throws Exception {
        Producer producer = producer("normal");
        SimpleConsumer consumer = simple("normal", "*", FilterExpressionType.TAG, "g");
        List<CompletableFuture<SendReceipt>> futures = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            futures.add(producer.sendAsync(message("normal", "" + i).build()));
        }
        TreeSet<String> ids = new TreeSet<>();
        for (CompletableFuture<SendReceipt> future : futures) {
            ids.add(future.get(PATIENCE_S, TimeUnit.SECONDS).getMessageId().toString());
        }
        TreeSet<Integer> read = new TreeSet<>();
        while (read.size() < 20) {
            for (MessageView each : consumer.receiveAsync(32, Duration.ofSeconds(15)).get(PATIENCE_S, TimeUnit.SECONDS)) {
                consumer.ackAsync(each).get(PATIENCE_S, TimeUnit.SECONDS);
                read.add(Integer.valueOf(body(each)));
            }
        }
        say("ids", ids.size(), "read", read.stream().map(String::valueOf).collect(Collectors.toList()));
    }

    static void filters() throws Exception {
        Producer producer = producer("normal");
        String[] tags = {"Aa", "BB", "C", "Aa", "D"};
        for (int i = 0; i < tags.length; i++) {
            producer.send(message("normal", tags[i] + i).setTag(tags[i]).addProperty("n", "" + i).build());
        }
        Object[] found = new Object[6];
        found[0] = "tags";
        found[1] = sorted(receiveAll(simple("normal", "Aa || C", FilterExpressionType.TAG, "tags"), 3, true));
        found[2] = "twin";
        found[3] = sorted(receiveAll(simple("normal", "BB", FilterExpressionType.TAG, "twin"), 1, true));
        found[4] = "sql";
        String expression = "n > 1 AND TAGS <> 'D'";
        found[5] = sorted(receiveAll(simple("normal", expression, FilterExpressionType.SQL92, "sql"), 2, true));
        say(found);
    }

    static void large() throws Exception {
        Producer producer = producer("normal");
        SimpleConsumer consumer = simple("normal", "*", FilterExpressionType.TAG, "g");
        String body = "x".repeat(3 << 20);
        producer.send(message("normal", body).build());
        boolean refused = false;
        try {
            producer.send(message("normal", "y".repeat((4 << 20) + 1)).build());
        } catch (Exception error) {
            refused = true;
        }
        say("intact", body(receiveAll(consumer, 1, true).get(0)).equals(body), "refused", refused);
    }

    static void pushAll() throws Exception {
        Producer producer = producer("normal");
        List<MessageView> taken = push("normal", "g", message -> true);
        for (int i = 0; i < 100; i++) {
            producer.send(message("normal", "" + i).build());
        }
        until(() -> distinct(taken).size() == 100, "a hundred messages");
        say("taken", numbers(taken));
    }

    static void fifo() throws Exception {
        Producer producer = producer("fifo");
        List<MessageView> taken = push("fifo", "orderly", message -> true);
        for (int step = 0; step < 6; step++) {
            for (int order = 0; order < 5; order++) {
                producer.send(message("fifo", order + " " + step).setMessageGroup("order " + order).build());
            }
        }
        until(() -> taken.size() == 30, "all steps");
        Map<String, Object> steps = new TreeMap<>();
        for (MessageView each : taken) {
            String[] words = body(each).split(" ");
            List<Object> known = cast(steps.computeIfAbsent(words[0], order -> new ArrayList<Object>()));
            known.add(Integer.valueOf(words[1]));
        }
        say("steps", steps);
    }

    static void invisible() throws Exception {
        Producer producer = producer("normal");
        SimpleConsumer consumer = simple("normal", "*", FilterExpressionType.TAG, "g");
        for (String body : new String[] {"longer", "back", "forgotten"}) {
            producer.send(message("normal", body).build());
        }
        Map<String, MessageView> held = new LinkedHashMap<>();
        for (MessageView each : receiveAll(consumer, 3, false)) {
            held.put(body(each), each);
        }
        consumer.changeInvisibleDuration(held.get("longer"), Duration.ofHours(1));
        consumer.changeInvisibleDuration(held.get("back"), Duration.ofSeconds(20));
        say("done", "held");
        INPUT.readLine();
        List<Object> again = new ArrayList<>();
        for (MessageView each : receiveAll(consumer, 2, true)) {
            again.add(List.of(body(each), each.getDeliveryAttempt()));
        }
        again.sort((one, other) -> one.toString().compareTo(other.toString()));
        consumer.ack(held.get("longer"));
        say("again", again);
    }

    static void delays() throws Exception {
        Producer producer = producer("delay");
        SimpleConsumer consumer = simple("delay", "*", FilterExpressionType.TAG, "g");
        long now = System.currentTimeMillis();
        producer.send(message("delay", "half").setDeliveryTimestamp(now + 1_800_000).build());
        producer.send(message("delay", "hour").setDeliveryTimestamp(now + 3_600_000).build());
        SendReceipt receipt = producer.send(message("delay", "recalled").setDeliveryTimestamp(now + 1_800_000).build());
        producer.recallMessage("delay", receipt.getRecallHandle());
        List<String> taken = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            say("done", "taken " + quoted(taken));
            INPUT.readLine();
            taken.addAll(sorted(receiveAll(consumer, 1, true)));
        }
        say("done", "taken " + quoted(taken));
    }

    static void transactions() throws Exception {
        List<String> asked = Collections.synchronizedList(new ArrayList<>());
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics("transaction")
            .setTransactionChecker(view -> {
                asked.add(body(view));
                return body(view).endsWith("commit") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
            }).build();
        List<MessageView> taken = push("transaction", "g", message -> true);
        for (String body : new String[] {"commit", "rollback", "asked-commit", "asked-not"}) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("transaction", body).build(), transaction);
            if (body.equals("commit")) {
                transaction.commit();
            } else if (body.equals("rollback")) {
                transaction.rollback();
            }
        }
        until(() -> !taken.isEmpty(), "what was committed");
        say("done", "taken " + quoted(bodies(taken)));
        INPUT.readLine();
        until(() -> taken.size() > 1 && asked.size() >= 2, "what was asked for");
        say("taken", bodies(taken), "asked", new ArrayList<>(new TreeSet<>(asked)));
    }

    static void deadLetter() throws Exception {
        Producer producer = producer("normal");
        List<MessageView> taken = push("normal", "few", message -> false);
        producer.send(message("normal", "bad").build());
        for (int number = 1; number <= 3; number++) {
            int wanted = number;
            until(() -> taken.size() == wanted, "try " + wanted);
            say("done", "tried " + number, "attempt", taken.get(number - 1).getDeliveryAttempt());
            INPUT.readLine();
        }
        say("tries", taken.size());
    }

    static void restart() throws Exception {
        Producer producer = producer("normal");
        List<MessageView> taken = push("normal", "g", message -> true);
        int number = 0;
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 10; i++) {
                sendAtLast(producer, message("normal", "" + number++).build());
            }
            int wanted = number;
            until(() -> distinct(taken).size() == wanted, "round " + round);
            say("taken", new ArrayList<>(new TreeSet<>(numbers(taken))));
            INPUT.readLine();
        }
    }

    // -- clients

    static Producer producer(String topic) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
    }

    static SimpleConsumer simple(String topic, String expression, FilterExpressionType type, String group)
            throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, new FilterExpression(expression, type))).build();
    }

    static List<MessageView> push(String topic, String group, Predicate<MessageView> judge) throws Exception {
        List<MessageView> taken = Collections.synchronizedList(new ArrayList<>());
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Map.of(topic, new FilterExpression("*", FilterExpressionType.TAG)))
            .setMessageListener(message -> {
                taken.add(message);
                return judge.test(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
            }).build();
        return taken;
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static List<MessageView> receiveAll(SimpleConsumer consumer, int count, boolean acks) throws Exception {
        List<MessageView> found = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
        while (found.size() < count) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("received " + found.size() + " messages of " + count);
            }
            for (MessageView each : consumer.receive(32, Duration.ofSeconds(15))) {
                found.add(each);
                if (acks) {
                    consumer.ack(each);
                }
            }
        }
        return found;
    }

    static void sendAtLast(Producer producer, Message message) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
        while (true) {
            try {
                producer.send(message);
                return;
            } catch (Exception error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(200);
            }
        }
    }

    static void until(BooleanSupplier condition, String what) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited in vain: " + what);
            }
            Thread.sleep(10);
        }
    }

    // -- texts

    static String body(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    static List<String> bodies(List<MessageView> messages) {
        synchronized (messages) {
            return messages.stream().map(GrpcClient::body).collect(Collectors.toList());
        }
    }

    static TreeSet<String> distinct(List<MessageView> messages) {
        return new TreeSet<>(bodies(messages));
    }

    static List<Integer> numbers(List<MessageView> messages) {
        return bodies(messages).stream().map(Integer::valueOf).sorted().collect(Collectors.toList());
    }

    static List<String> sorted(List<MessageView> messages) {
        return messages.stream().map(GrpcClient::body).sorted().collect(Collectors.toList());
    }

    static String quoted(List<String> words) {
        return words.stream().map(word -> "'" + word + "'").collect(Collectors.joining(", ", "[", "]"));
    }

    @SuppressWarnings("unchecked")
    static List<Object> cast(Object list) {
        return (List<Object>) list;
    }

    static void say(Object... pairs) {
        Map<String, Object> line = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        System.out.println(json(line));
        System.out.flush();
    }

    static String json(Object value) {
        if (value instanceof Map) {
            return ((Map<?, ?>) value).entrySet().stream().map(each -> json(each.getKey()) + ":" + json(each.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Iterable) {
            List<String> parts = new ArrayList<>();
            ((Iterable<?>) value).forEach(each -> parts.add(json(each)));
            return "[" + String.join(",", parts) + "]";
        }
        return value instanceof String ? "\"" + value + "\"" : String.valueOf(value);
    }
}
