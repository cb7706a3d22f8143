import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** What the scenarios share: connections, queues, publishing and taking. */
final class Broker {
    static final int PATIENCE_S = 60;
    static final BasicProperties PERSISTENT = new BasicProperties.Builder().deliveryMode(2).build();

    interface Each {
        void take(Delivery delivery) throws Exception;
    }

    private final ConnectionFactory factory = new ConnectionFactory();
    private final List<Connection> connections = new ArrayList<>();

    Broker(String address) {
        int colon = address.lastIndexOf(':');
        factory.setHost(address.substring(0, colon));
        factory.setPort(Integer.parseInt(address.substring(colon + 1)));
    }

    /** Comes back by itself when it is lost, with its channels, queues and consumers, as the client does by default. */
    Connection connect() throws Exception {
        factory.setNetworkRecoveryInterval(50);
        Connection connection = factory.newConnection();
        connections.add(connection);
        return connection;
    }

    /** A channel of a connection of its own, which confirms what is published. */
    Channel channel() throws Exception {
        Channel channel = connect().createChannel();
        channel.confirmSelect();
        return channel;
    }

    void disconnect() throws IOException {
        for (Connection connection : connections) {
            connection.close();
        }
    }

    static String own(Channel channel, Map<String, Object> arguments) throws IOException {
        return channel.queueDeclare("", false, true, false, arguments).getQueue();
    }

    static void durable(Channel channel, String name, Map<String, Object> arguments) throws IOException {
        channel.queueDeclare(name, true, false, false, arguments);
    }

    static BlockingQueue<Delivery> consume(Channel channel, String queue, boolean autoAck) throws IOException {
        BlockingQueue<Delivery> came = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, autoAck, (tag, delivery) -> came.add(delivery), tag -> {});
        return came;
    }

    static List<Delivery> take(BlockingQueue<Delivery> came, int count, Each each) throws Exception {
        List<Delivery> taken = new ArrayList<>();
        while (taken.size() < count) {
            Delivery delivery = came.poll(PATIENCE_S, TimeUnit.SECONDS);
            if (delivery == null) {
                throw new IllegalStateException("only " + taken.size() + " of " + count + " came");
            }
            taken.add(delivery);
            each.take(delivery);
        }
        return taken;
    }

    static Each acknowledging(Channel channel) {
        return delivery -> channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
    }

    static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static List<String> texts(List<Delivery> deliveries) {
        return deliveries.stream().map(delivery -> text(delivery.getBody())).toList();
    }

    static List<byte[]> numbered(int count) {
        return IntStream.range(0, count).mapToObj(number -> bytes(String.valueOf(number))).toList();
    }
}
