import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask for messages themselves. */
final class Pulling {
    /** A member of a group, then another that goes on after its commit. */
    static void subscribed(Servers servers, Lines lines) throws Exception {
        Pushing.sendNumbers(servers, "pull", "tag", 0, 40);
        lines.print("read", readAndCommit(servers, 40));
        Pushing.sendNumbers(servers, "pull", "tag", 40, 50);
        lines.print("read", readAndCommit(servers, 10));
    }

    /** Offsets go to the broker now and then, and at the consumer's end. */
    private static List<Integer> readAndCommit(Servers servers, int count) throws Exception {
        DefaultLitePullConsumer consumer = servers.pulled("pull");
        consumer.subscribe("pull", "*");
        consumer.start();
        List<MessageExt> found = some(consumer, count);
        consumer.commitSync();
        consumer.shutdown();
        return Pushing.numbers(texts(found));
    }

    /** One queue, without a group: from an offset, from a time, from both ends. It seeks only while it waits for more:
     * what a pull brings that is answered while the client seeks may be handed out, with a genuine broker too. */
    static void assigned(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("assign");
        MessageQueue queue = producer.send(Servers.message("assign", "tag", "k", 0)).getMessageQueue();
        for (int i = 1; i < 10; i++) {
            producer.send(Servers.message("assign", "tag", "k", i), queue);
        }
        DefaultLitePullConsumer consumer = servers.pulled("assign");
        consumer.start();
        Collection<MessageQueue> queues = Servers.queues(consumer, "assign");
        MessageQueue own = queues.stream().filter(each -> each.getQueueId() == queue.getQueueId()).findAny().get();
        consumer.assign(List.of(own));
        List<MessageExt> first = some(consumer, 10);
        consumer.seek(own, 6);
        List<MessageExt> late = some(consumer, 4);
        consumer.seekToBegin(own);
        List<MessageExt> all = some(consumer, 10);
        consumer.seekToEnd(own);
        producer.send(Servers.message("assign", "tag", "k", 10), queue);
        List<MessageExt> last = some(consumer, 1);
        long storedMs = all.get(4).getStoreTimestamp();
        lines.print("queues", queues.size(), "first", texts(first), "sought", texts(late), "all", texts(all),
                "last", texts(last), "ends", List.of(producer.minOffset(own), producer.maxOffset(own)),
                "timed", all.get(consumer.offsetForTimestamp(own, storedMs).intValue()).getStoreTimestamp() == storedMs,
                "before", producer.searchOffset(own, storedMs - 3_600_000),
                "after", producer.searchOffset(own, storedMs + 3_600_000),
                "earliest", producer.earliestMsgStoreTime(own) == all.get(0).getStoreTimestamp());
        consumer.shutdown();
        producer.shutdown();
    }

    private static List<MessageExt> some(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        Servers.await(count + " messages", () -> found.addAll(consumer.poll(100)) && found.size() >= count);
        return found;
    }

    private static List<String> texts(List<MessageExt> messages) {
        return messages.stream().map(Servers::text).toList();
    }

    private Pulling() {}
}
