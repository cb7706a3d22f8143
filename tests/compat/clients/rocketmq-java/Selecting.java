import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Consumers that want the messages of which an expression is true. */
final class Selecting {
    /** Six messages with properties, or without. */
    static void sql(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("sql");
        Object[][] each = {{1, "x", "c"}, {5, "x", "c"}, {6, "x", "c"}, {3, "y", "c"}, {9, "y", null}, {null, "x", "c"}};
        for (int i = 0; i < each.length; i++) {
            Message message = Servers.message("sql", "tag", "k", i);
            String[] names = {"a", "b", "c"};
            for (int j = 0; j < names.length; j++) {
                if (each[i][j] != null) {
                    message.putUserProperty(names[j], String.valueOf(each[i][j]));
                }
            }
            producer.send(message);
        }
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = selecting(servers, "sql", "a BETWEEN 1 AND 5 AND b = 'x' OR c IS NULL");
        Pushing.take(consumer, taken);
        consumer.start();
        Servers.await("three messages", () -> taken.size() >= 3);
        Message last = Servers.message("sql", "tag", "k", 6);
        last.putUserProperty("a", "2");
        last.putUserProperty("b", "x");
        producer.send(last);
        Servers.await("the last message", () -> taken.contains("6"));
        String refused = "none";
        DefaultMQPushConsumer broken = selecting(servers, "sql-broken", "a BETWEEN 5 AND 1");
        Pushing.take(broken, taken);
        try {
            broken.start();
        } catch (MQClientException reason) {
            refused = "code " + reason.getResponseCode();
        }
        lines.print("taken", Pushing.numbers(taken), "refused", refused);
        consumer.shutdown();
        producer.shutdown();
    }

    private static DefaultMQPushConsumer selecting(Servers servers, String group, String expression) throws Exception {
        DefaultMQPushConsumer consumer = servers.pushed(group, "sql", "*");
        consumer.subscribe("sql", MessageSelector.bySql(expression));
        return consumer;
    }

    private Selecting() {}
}
