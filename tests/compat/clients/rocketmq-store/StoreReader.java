import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store with RocketMQ's own code and answers the questions of its arguments, a line each: `queue TOPIC NUMBER`
 * prints its ends and every message, `key TOPIC KEY` the messages with that key. The first argument is the folder, the
 * second a file of store settings.
 */
public final class StoreReader {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(arguments[1]))) {
            properties.load(reader);
        }
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(properties, config);
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setHaListenPort(0);
        BrokerConfig broker = new BrokerConfig();
        BrokerStatsManager statistics = new BrokerStatsManager("reader", true);
        DefaultMessageStore store =
            new DefaultMessageStore(config, statistics, null, broker, new ConcurrentHashMap<>());
        System.out.println("loaded " + store.load());
        store.start();
        try {
            System.out.println("log " + store.getMinPhyOffset() + " " + store.getMaxPhyOffset());
            for (int at = 2; at < arguments.length; at += 3) {
                if (arguments[at].equals("queue")) {
                    printQueue(store, arguments[at + 1], Integer.parseInt(arguments[at + 2]));
                } else {
                    printKey(store, arguments[at + 1], arguments[at + 2]);
                }
            }
        } finally {
            store.shutdown();
        }
        System.exit(0);
    }

    private static void printQueue(DefaultMessageStore store, String topic, int queue) throws Exception {
        long offset = store.getMinOffsetInQueue(topic, queue);
        long end = store.getMaxOffsetInQueue(topic, queue);
        System.out.println("queue " + topic + " " + queue + " " + offset + " " + end);
        while (offset < end) {
            GetMessageResult found = store.getMessage("reader", topic, queue, offset, 32, null);
            if (found == null || found.getMessageCount() == 0) {
                System.out.println("stopped at " + offset + " " + (found == null ? "null" : found.getStatus()));
                return;
            }
            printAll(found.getMessageBufferList());
            offset = found.getNextBeginOffset();
            found.release();
        }
    }

    private static void printKey(DefaultMessageStore store, String topic, String key) {
        System.out.println("key " + topic + " " + key);
        QueryMessageResult found = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        printAll(found.getMessageBufferList());
        found.release();
    }

    private static void printAll(List<ByteBuffer> buffers) {
        for (ByteBuffer buffer : buffers) {
            MessageExt message = MessageDecoder.decode(buffer.duplicate(), true, false);
            System.out.println("message " + message.getQueueOffset() + " " + message.getCommitLogOffset() + " "
                + new String(message.getBody(), StandardCharsets.UTF_8));
        }
    }
}
