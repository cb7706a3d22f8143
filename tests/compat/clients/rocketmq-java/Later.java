import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Messages that come later. The test moves the time at each pause. */
final class Later {
    static void levels(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("levels");
        producer.send(Servers.message("levels", "tag", "k", 0));
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = Pushing.taking(servers, "levels", "levels", "*", taken);
        for (int level : List.of(18, 5, 2)) {
            Message message = Servers.message("levels", "tag", "k", level);
            message.setDelayTimeLevel(level);
            producer.send(message);
        }
        for (int count = 1; count <= 4; count++) {
            int wanted = count;
            Servers.await(count + " messages", () -> taken.size() >= wanted);
            lines.pause("taken " + taken);
        }
        consumer.shutdown();
        producer.shutdown();
    }

    private Later() {}
}
