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
                send(producer, "restart", round * 10 + i);
            }
            int last = round;
            Servers.await("round " + round, () -> Pushing.numbers(taken).size() >= 1 + 10 * last);
        }
        lines.print("taken", Pushing.numbers(taken));
        consumer.shutdown();
        producer.shutdown();
    }

    /** The name server alone is gone after the first pause and back after the second. Who comes to a topic that it does
     * not know asks where it is. */
    static void underNames(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("names");
        producer.send(Servers.message("names", "tag", "k", 0));
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = Pushing.taking(servers, "names", "names", "*", taken);
        Servers.await("the first message", () -> taken.size() >= 1);
        lines.pause("taken " + Pushing.numbers(taken));
        for (int i = 1; i <= 10; i++) {
            send(producer, "names", i);
        }
        Servers.await("what came without it", () -> Pushing.numbers(taken).size() >= 11);
        lines.pause("taken " + Pushing.numbers(taken));
        send(producer, "names-later", 11);
        send(producer, "names", 12);
        Servers.await("what came afterwards", () -> taken.contains("12"));
        lines.print("taken", Pushing.numbers(taken), "later", servers.readTexts("names-later", 1));
        consumer.shutdown();
        producer.shutdown();
    }

    /** A sender whose broker is away tries again; the name server may not know of it for a moment either. */
    private static void send(DefaultMQProducer producer, String topic, int number) throws Exception {
        Servers.await("an answer to " + number, () -> {
            try {
                producer.send(Servers.message(topic, "tag", "k", number));
                return true;
            } catch (MQClientException | org.apache.rocketmq.remoting.exception.RemotingException away) {
                return false;
            }
        });
    }

    private Restarts() {}
}
