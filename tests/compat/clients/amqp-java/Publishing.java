import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.LongString;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** What a publisher hears, and what becomes of bodies, headers and transactions. */
final class Publishing {
    /** Publishes without waiting in between, and counts the answers. */
    static Map<String, Object> publishAll(Channel channel, String queue, List<byte[]> bodies, BasicProperties properties)
            throws Exception {
        TreeSet<Long> open = new TreeSet<>();
        int[] answers = new int[2];
        CountDownLatch all = new CountDownLatch(1);
        channel.clearConfirmListeners();
        channel.addConfirmListener((tag, multiple) -> settle(open, answers, 0, tag, multiple, bodies.size(), all),
                (tag, multiple) -> settle(open, answers, 1, tag, multiple, bodies.size(), all));
        for (byte[] body : bodies) {
            synchronized (open) {
                open.add(channel.getNextPublishSeqNo());
            }
            channel.basicPublish("", queue, true, properties, body);
        }
        if (!all.await(Broker.PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.size() + " were not confirmed");
        }
        return Lines.object("confirmed", answers[0], "refused", answers[1]);
    }

    private static void settle(
            TreeSet<Long> open, int[] answers, int which, long tag, boolean multiple, int count, CountDownLatch all) {
        synchronized (open) {
            if (multiple) {
                var told = open.headSet(tag, true);
                answers[which] += told.size();
                told.clear();
            } else if (open.remove(tag)) {
                answers[which] += 1;
            }
            if (answers[0] + answers[1] == count) {
                all.countDown();
            }
        }
    }

    private static void print(Map<String, Object> answers) {
        Lines.print("confirmed", answers.get("confirmed"), "refused", answers.get("refused"));
    }

    static void confirms(Broker broker, Map<String, String> options) throws Exception {
        int count = Integer.parseInt(options.get("count"));
        Channel channel = broker.channel();
        Broker.durable(channel, "confirms", null);
        print(publishAll(channel, "confirms", Broker.numbered(count), Broker.PERSISTENT));
        var came = Broker.consume(channel, "confirms", false);
        Lines.print("read", Broker.texts(Broker.take(came, count, Broker.acknowledging(channel))));
        String full = Broker.own(channel, Map.of("x-max-length", 1, "x-overflow", "reject-publish"));
        print(publishAll(channel, full, List.of(Broker.bytes("first"), Broker.bytes("second")), Broker.PERSISTENT));
    }

    static void returns(Broker broker, Map<String, String> options) throws Exception {
        Channel channel = broker.channel();
        channel.addReturnListener(back -> Lines.print("code", back.getReplyCode(), "text", back.getReplyText(),
                "exchange", back.getExchange(), "key", back.getRoutingKey(), "body", Broker.text(back.getBody())));
        print(publishAll(channel, "nowhere", List.of(Broker.bytes("lost")), Broker.PERSISTENT));
    }

    static void bodies(Broker broker, Map<String, String> options) throws Exception {
        Channel channel = broker.channel();
        String queue = Broker.own(channel, null);
        List<byte[]> sent = new ArrayList<>();
        for (String size : options.get("sizes").split(",")) {
            byte[] body = new byte[Integer.parseInt(size)];
            for (int i = 0; i < body.length; i++) {
                body[i] = (byte) (i * 31);
            }
            sent.add(body);
        }
        publishAll(channel, queue, sent, Broker.PERSISTENT);
        List<Delivery> came = Broker.take(Broker.consume(channel, queue, true), sent.size(), delivery -> {});
        boolean intact = true;
        for (int i = 0; i < came.size(); i++) {
            intact &= Arrays.equals(came.get(i).getBody(), sent.get(i));
        }
        Lines.print("sizes", came.stream().map(delivery -> delivery.getBody().length).toList(), "intact", intact);
    }

    static void headers(Broker broker, Map<String, String> options) throws Exception {
        Channel channel = broker.channel();
        String queue = Broker.own(channel, null);
        Map<String, Object> headers = new HashMap<>(Lines.object("text", "é", "small", 1, "large", 1L << 40, "half", 0.5,
                "flag", true, "none", null, "list", List.of(1, "a", Map.of("b", List.of(false)))));
        var properties = new BasicProperties.Builder().headers(headers).priority(3).messageId("m").build();
        publishAll(channel, queue, List.of(new byte[0]), properties);
        GetResponse message = channel.basicGet(queue, true);
        Lines.print("headers", plain(message.getProps().getHeaders()), "priority", message.getProps().getPriority(),
                "id", message.getProps().getMessageId());
    }

    /** The client's own kinds of text as Java's. */
    static Object plain(Object value) {
        if (value instanceof LongString text) {
            return text.toString();
        }
        if (value instanceof List<?> items) {
            return items.stream().map(Publishing::plain).collect(Collectors.toList());
        }
        if (value instanceof Map<?, ?> table) {
            Map<String, Object> found = new HashMap<>();
            table.forEach((name, item) -> found.put((String) name, plain(item)));
            return found;
        }
        return value;
    }

    static void transactions(Broker broker, Map<String, String> options) throws Exception {
        Connection connection = broker.connect();
        Channel channel = connection.createChannel();
        Channel other = connection.createChannel();
        String queue = Broker.own(other, null);
        channel.txSelect();
        channel.basicPublish("", queue, null, Broker.bytes("rolled back"));
        Lines.print("ready", other.messageCount(queue), "after", "publish");
        channel.txRollback();
        Lines.print("ready", other.messageCount(queue), "after", "rollback");
        channel.basicPublish("", queue, null, Broker.bytes("kept"));
        channel.txCommit();
        Lines.print("ready", other.messageCount(queue), "after", "commit");
        Lines.print("read", Broker.text(other.basicGet(queue, true).getBody()));
    }

    private Publishing() {}
}
