import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that are delivered when a local transaction is committed. The test moves the time at the pauses. */
final class Transactions {
    /** Answers at once what the message's tag says; is asked later about `asked-…`, which then ends as it says; twice
     * about `twice-…`. */
    private static final class Listener implements TransactionListener {
        final Map<String, Integer> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return switch (message.getTags()) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int times = asked.merge(message.getTags(), 1, Integer::sum);
            return switch (message.getTags()) {
                case "asked-commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "asked-rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                case "twice-commit" -> times < 2 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }
    }

    static void everyOutcome(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer plain = servers.producer("plain");
        plain.send(Servers.message("transactions", "plain", "k", "plain"));
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = Pushing.taking(servers, "transactions", "transactions", "*", taken);
        Servers.await("the plain message", () -> taken.size() == 1);
        Listener listener = new Listener();
        TransactionMQProducer producer = servers.transactional("transactions");
        producer.setTransactionListener(listener);
        producer.start();
        for (String tag : List.of("rollback", "asked-rollback", "never", "twice-commit", "asked-commit", "commit")) {
            producer.sendMessageInTransaction(Servers.message("transactions", tag, "k", tag), null);
        }
        Servers.await("what is committed at once", () -> taken.contains("commit"));
        lines.pause("taken " + taken);
        Servers.await("the first questions", () -> taken.contains("asked-commit") && listener.asked.size() >= 4);
        lines.pause("taken " + taken);
        Servers.await("the second questions", () -> taken.contains("twice-commit"));
        lines.pause("taken " + taken);
        lines.print("asked", new TreeMap<>(listener.asked), "taken", taken);
        consumer.shutdown();
        producer.shutdown();
        plain.shutdown();
    }

    private Transactions() {}
}
