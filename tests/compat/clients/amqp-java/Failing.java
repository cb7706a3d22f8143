import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.Method;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Dead letters, and mistakes. */
final class Failing {
    private interface Act {
        void on(Channel channel) throws IOException;
    }

    private static Map<String, Object> to(String key) {
        return new HashMap<>(Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", key));
    }

    static void deadLetters(Broker broker, Map<String, String> options) throws Exception {
        Channel channel = broker.channel();
        Map<String, Object> waiting = to("work");
        waiting.put("x-message-ttl", 50);
        Broker.durable(channel, "work", to("retry"));
        Broker.durable(channel, "retry", waiting);
        Publishing.publishAll(channel, "work", List.of(Broker.bytes("hard")), Broker.PERSISTENT);
        int[] attempt = {0};
        Broker.take(Broker.consume(channel, "work", false), 3, message -> {
            attempt[0] += 1;
            Lines.print("try", attempt[0], "deaths", deaths(message));
            long tag = message.getEnvelope().getDeliveryTag();
            if (attempt[0] < 3) {
                channel.basicReject(tag, false);
            } else {
                channel.basicAck(tag, false);
            }
        });
    }

    private static List<Object> deaths(Delivery message) {
        Map<String, Object> headers = message.getProperties().getHeaders();
        Object entries = headers == null ? null : Publishing.plain(headers.get("x-death"));
        List<Object> found = new ArrayList<>();
        if (entries instanceof List<?> tables) {
            for (Object entry : tables) {
                Map<?, ?> table = (Map<?, ?>) entry;
                found.add(List.of(table.get("queue"), table.get("reason"), table.get("count")));
            }
        }
        found.sort(Comparator.comparing(Object::toString));
        return found;
    }

    static void mistakes(Broker broker, Map<String, String> options) throws Exception {
        Connection connection = broker.connect();
        Broker.durable(connection.createChannel(), "mistaken", null);
        attempt(connection, "declare passively", channel -> channel.queueDeclarePassive("missing"));
        attempt(connection, "declare otherwise",
                channel -> channel.queueDeclare("mistaken", false, false, false, null));
        attempt(connection, "publish to no exchange", channel -> {
            channel.basicPublish("missing", "", null, new byte[0]);
            channel.basicQos(1); // heard of by what is asked next
        });
        attempt(connection, "declare", channel -> Broker.durable(channel, "mistaken", null));
    }

    private static void attempt(Connection connection, String did, Act act) throws Exception {
        Channel channel = connection.createChannel();
        CompletableFuture<Method> closed = new CompletableFuture<>();
        channel.addShutdownListener(cause -> closed.complete(cause.getReason()));
        int code = 0;
        try {
            act.on(channel);
        } catch (IOException | AlreadyClosedException refused) {
            code = ((AMQP.Channel.Close) closed.get(Broker.PATIENCE_S, TimeUnit.SECONDS)).getReplyCode();
        }
        Lines.print("did", did, "code", code);
    }

    private Failing() {}
}
