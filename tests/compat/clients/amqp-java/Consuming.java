import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.Delivery;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What a consumer gets, and when; questions and answers. */
final class Consuming {
    static void prefetch(Broker broker, Map<String, String> options) throws Exception {
        Channel channel = broker.channel();
        String queue = Broker.own(channel, null);
        Publishing.publishAll(channel, queue, Broker.numbered(10), Broker.PERSISTENT);
        channel.basicQos(3);
        BlockingQueue<Delivery> coming = Broker.consume(channel, queue, false);
        List<Delivery> came = new ArrayList<>(Broker.take(coming, 3, delivery -> {}));
        Lines.print("came", Broker.texts(came), "ready", channel.messageCount(queue));
        channel.basicAck(came.get(1).getEnvelope().getDeliveryTag(), true);
        came.addAll(Broker.take(coming, 2, delivery -> {}));
        Lines.print("came", Broker.texts(came), "ready", channel.messageCount(queue));
    }

    private static List<Object> flags(List<Delivery> deliveries) {
        return new ArrayList<>(deliveries.stream()
                .map(one -> List.of(Broker.text(one.getBody()), one.getEnvelope().isRedeliver()))
                .toList());
    }

    /** The client connects, opens its channel and consumes again by itself; the same consumer goes on. */
    static void cut(Broker broker, Map<String, String> options) throws Exception {
        Connection connection = broker.connect();
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        Broker.durable(channel, "cut", null);
        Publishing.publishAll(channel, "cut", Broker.numbered(5), Broker.PERSISTENT);
        channel.basicQos(3);
        CountDownLatch lost = new CountDownLatch(1);
        connection.addShutdownListener(cause -> lost.countDown());
        BlockingQueue<Delivery> coming = Broker.consume(channel, "cut", false);
        Lines.print("came", flags(Broker.take(coming, 3, delivery -> {})));
        if (!lost.await(Broker.PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the connection was not lost");
        }
        Lines.print("event", "lost");
        Lines.print("came", flags(Broker.take(coming, 5, Broker.acknowledging(channel))));
    }

    static void rpc(Broker broker, Map<String, String> options) throws Exception {
        int count = Integer.parseInt(options.get("count"));
        Channel server = broker.channel();
        Broker.durable(server, "questions", null);
        server.basicConsume("questions", false, (tag, question) -> {
            String answer = String.valueOf(Integer.parseInt(Broker.text(question.getBody())) * 7);
            BasicProperties asked = question.getProperties();
            var properties = new BasicProperties.Builder().correlationId(asked.getCorrelationId()).build();
            server.basicPublish("", asked.getReplyTo(), properties, Broker.bytes(answer));
            server.basicAck(question.getEnvelope().getDeliveryTag(), false);
        }, tag -> {});
        Channel client = broker.channel();
        BlockingQueue<Delivery> coming = Broker.consume(client, "amq.rabbitmq.reply-to", true);
        for (byte[] number : Broker.numbered(count)) {
            var properties = new BasicProperties.Builder()
                    .replyTo("amq.rabbitmq.reply-to").correlationId(Broker.text(number)).build();
            client.basicPublish("", "questions", properties, number);
        }
        Map<Integer, String> answers = new TreeMap<>();
        Broker.take(coming, count, answer -> answers.put(
                Integer.parseInt(answer.getProperties().getCorrelationId()), Broker.text(answer.getBody())));
        Lines.print("answers", new ArrayList<>(answers.values()));
    }

    static void cancelled(Broker broker, Map<String, String> options) throws Exception {
        Channel channel = broker.channel();
        Broker.durable(channel, "doomed", null);
        CountDownLatch told = new CountDownLatch(1);
        channel.basicConsume("doomed", (tag, delivery) -> {}, tag -> told.countDown());
        broker.channel().queueDelete("doomed");
        Lines.print("event", told.await(Broker.PATIENCE_S, TimeUnit.SECONDS) ? "cancelled" : "nothing");
    }

    private Consuming() {}
}
