import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Clients that live on while the servers do not. */
final class Restarts {
    /** At each pause the test does something to the servers: `rounds=` says how often. */
    static void underClients(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("restart");
        producer.send(Servers.message("restart", "tag", "k", 0));
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = Pushing.taking(servers, "restart", "restart", "*", taken);
        Servers.await("the first message", () -> taken.size() >= 1);
        int rounds = Integer.parseInt(servers.option("rounds"));
        for (int round = 1; round <= rounds; round++) {
            lines.pause("taken " + Pushing.numbers(taken));
            for (int i = 0; i < 10; i++) {
                send(producer, round * 10 + i);
            }
            int last = round;
            Servers.await("round " + round, () -> Pushing.numbers(taken).size() >= 1 + 10 * last);
        }
        lines.print("taken", Pushing.numbers(taken));
        consumer.shutdown();
        producer.shutdown();
    }

    /** A sender whose broker is away tries again; the name server may not know of it for a moment either. */
    private static void send(DefaultMQProducer producer, int number) throws Exception {
        Servers.await("an answer to " + number, () -> {
            try {
                producer.send(Servers.message("restart", "tag", "k", number));
                return true;
            } catch (MQClientException | org.apache.rocketmq.remoting.exception.RemotingException away) {
                return false;
            }
        });
    }

    private Restarts() {}
}
