import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers to which messages come by themselves. */
final class Pushing {
    static void concurrent(Servers servers, Lines lines) throws Exception {
        sendNumbers(servers, "concurrent", "tag", 0, 100);
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = taking(servers, "concurrent", "concurrent", "*", taken);
        Servers.await("100 messages", () -> taken.size() >= 100);
        sendNumbers(servers, "concurrent", "tag", 100, 120);
        Servers.await("20 more", () -> taken.size() >= 120);
        consumer.shutdown();
        lines.print("taken", numbers(taken));
        DefaultMQPushConsumer next = taking(servers, "concurrent", "concurrent", "*", taken);
        sendNumbers(servers, "concurrent", "tag", 120, 130);
        Servers.await("10 after it", () -> taken.size() >= 130);
        next.shutdown();
        lines.print("taken", numbers(taken));
    }

    /** Steps of five orders, sent in turn; each order has a queue by its number. Two of the listener's tries fail. */
    static void orderly(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("orderly");
        for (int step = 0; step < 6; step++) {
            for (int order = 0; order < 5; order++) {
                producer.send(Servers.message("orderly", "tag", order, order + ":" + step),
                        (queues, message, number) -> queues.get((Integer) number % queues.size()), order);
            }
        }
        Map<String, List<Integer>> steps = new ConcurrentHashMap<>();
        List<String> failed = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = servers.pushed("orderly", "orderly", "*");
        consumer.setMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                String[] parts = Servers.text(message).split(":");
                if (parts[1].equals("3") && failed.size() < 2) {
                    failed.add(Servers.text(message));
                    context.setSuspendCurrentQueueTimeMillis(100);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                steps.computeIfAbsent(parts[0], key -> new CopyOnWriteArrayList<>()).add(Integer.valueOf(parts[1]));
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.start();
        Servers.await("all steps", () -> steps.values().stream().mapToInt(List::size).sum() >= 30);
        consumer.shutdown();
        producer.shutdown();
        lines.print("steps", new TreeMap<>(steps), "suspended", failed.size());
    }

    /** The two tags `Aa` and `BB` have the same hash. */
    static void tags(Servers servers, Lines lines) throws Exception {
        for (String tag : List.of("Aa", "BB", "C", "D")) {
            sendNumbers(servers, "tags", tag, 0, 5);
        }
        List<String> two = new CopyOnWriteArrayList<>();
        List<String> twin = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer first = tagged(servers, "tags-two", "Aa || C", two);
        DefaultMQPushConsumer second = tagged(servers, "tags-twin", "BB", twin);
        sendNumbers(servers, "tags", "BB", 5, 6);
        sendNumbers(servers, "tags", "C", 5, 6);
        Servers.await("both tags", () -> two.size() >= 11 && twin.size() >= 6);
        first.shutdown();
        second.shutdown();
        lines.print("two", two.stream().sorted().toList(), "twin", twin.stream().sorted().toList());
    }

    private static DefaultMQPushConsumer tagged(Servers servers, String group, String expression, List<String> taken)
            throws Exception {
        DefaultMQPushConsumer consumer = servers.pushed(group, "tags", expression);
        consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> taken.add(message.getTags() + Servers.text(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /**
     * Two groups of two; then one member of the first leaves. Message 0 comes while the groups are still being divided:
     * whoever gets its queue before the one who had it has committed may see it again, so it does not count as one more.
     */
    static void twoGroups(Servers servers, Lines lines) throws Exception {
        sendNumbers(servers, "groups", "tag", 0, 1); // makes the topic
        List<List<String>> taken = new ArrayList<>();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (String group : List.of("groups-one", "groups-one", "groups-two", "groups-two")) {
            List<String> own = new CopyOnWriteArrayList<>();
            taken.add(own);
            members.add(taking(servers, group, "groups", "*", own));
        }
        Servers.await("an even division", () -> members.stream().allMatch(member -> shares(member, "groups") == 2));
        sendNumbers(servers, "groups", "tag", 1, 101);
        for (int first : List.of(0, 2)) {
            List<String> one = taken.get(first);
            List<String> other = taken.get(first + 1);
            Servers.await("all in group " + first, () -> both(one, other).size() >= 101);
            long divided = Stream.of(one, other).flatMap(List::stream).filter(text -> !text.equals("0")).count();
            lines.print("group", first / 2, "all", both(one, other), "more", divided - 100,
                    "each", one.size() > 0 && other.size() > 0);
        }
        members.get(1).shutdown();
        Servers.await("one member with all", () -> shares(members.get(0), "groups") == 4);
        taken.get(0).clear();
        sendNumbers(servers, "groups", "tag", 101, 121);
        Servers.await("what came after", () -> numbers(taken.get(0)).stream().filter(each -> each > 100).count() >= 20);
        lines.print("alone", numbers(taken.get(0)).stream().filter(each -> each > 100).toList());
        for (int i : List.of(0, 2, 3)) {
            members.get(i).shutdown();
        }
    }

    /** How many queues of the topic a member has. */
    static long shares(DefaultMQPushConsumer member, String topic) {
        return member.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(queue -> queue.getTopic().equals(topic)).count();
    }

    /** The test gives the topic, which has one queue, three more at the pause. */
    static void grown(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("grown");
        producer.send(Servers.message("grown", "tag", "k", "before"));
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = taking(servers, "grown", "grown", "*", taken);
        Servers.await("the first message", () -> taken.size() == 1);
        long before = shares(consumer, "grown");
        lines.pause("taken " + taken);
        Servers.await("four queues to send to", () -> producer.fetchPublishMessageQueues("grown").size() == 4);
        for (MessageQueue queue : producer.fetchPublishMessageQueues("grown")) {
            producer.send(Servers.message("grown", "tag", "k", queue.getQueueId()), queue);
        }
        Servers.await("a message of each", () -> taken.size() >= 5);
        lines.print("before", before, "after", shares(consumer, "grown"), "taken", taken.stream().sorted().toList());
        consumer.shutdown();
        producer.shutdown();
    }

    /** Every message is tried three times; with the shortest delay. Its id stays. */
    static void retried(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("retried");
        String id = producer.send(Servers.message("retried", "tag", "k", "again")).getMsgId();
        List<Integer> times = new CopyOnWriteArrayList<>();
        List<String> ids = new CopyOnWriteArrayList<>();
        List<String> topics = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = servers.pushed("retried", "retried", "*");
        consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
            ids.add(messages.get(0).getMsgId());
            topics.add(messages.get(0).getTopic());
            times.add(messages.get(0).getReconsumeTimes());
            context.setDelayLevelWhenNextConsume(1);
            return times.size() < 3
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Servers.await("the third try", () -> times.size() >= 3);
        lines.print("times", times, "topics", topics, "kept", ids.stream().allMatch(id::equals));
        consumer.shutdown();
        producer.shutdown();
    }

    static DefaultMQPushConsumer taking(
            Servers servers, String group, String topic, String expression, List<String> taken) throws Exception {
        DefaultMQPushConsumer consumer = servers.pushed(group, topic, expression);
        take(consumer, taken);
        consumer.start();
        return consumer;
    }

    static void take(DefaultMQPushConsumer consumer, List<String> taken) {
        consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> taken.add(Servers.text(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    static void sendNumbers(Servers servers, String topic, String tag, int from, int to) throws Exception {
        DefaultMQProducer producer = servers.producer("numbers-" + topic);
        for (int i : IntStream.range(from, to).toArray()) {
            producer.send(Servers.message(topic, tag, "k" + i, i));
        }
        producer.shutdown();
    }

    static List<Integer> numbers(List<String> texts) {
        return texts.stream().map(Integer::valueOf).distinct().sorted().toList();
    }

    private static List<Integer> both(List<String> one, List<String> other) {
        List<String> all = new ArrayList<>(one);
        all.addAll(other);
        return numbers(all);
    }

    private Pushing() {}
}
