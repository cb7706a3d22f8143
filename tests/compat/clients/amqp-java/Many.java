import com.rabbitmq.client.Channel;
import com.rabbitmq.client.GetResponse;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Many queues with a message each. */
final class Many {
    static void many(Broker broker, Map<String, String> options) throws Exception {
        Channel channel = broker.channel();
        int count = Integer.parseInt(options.get("count"));
        List<String> names = IntStream.range(0, count).mapToObj(number -> "many." + number).toList();
        for (String name : names) {
            Broker.durable(channel, name, null);
        }
        Lines.print("did", "declare", "queues", names.size());
        for (String name : names) {
            channel.basicPublish("", name, true, Broker.PERSISTENT, Broker.bytes(name));
        }
        channel.waitForConfirmsOrDie(Broker.PATIENCE_S * 1000L);
        int read = 0;
        for (String name : names) {
            GetResponse message = channel.basicGet(name, true);
            read += message != null && Broker.text(message.getBody()).equals(name) ? 1 : 0;
        }
        Lines.print("did", "read", "queues", read);
        int left = 0;
        for (String name : names) {
            left += channel.queueDelete(name).getMessageCount();
        }
        Lines.print("did", "delete", "left", left);
    }

    private Many() {}
}
