import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** What depends on the broker's time, which the test moves at each pause. */
final class Timed {
    /** The three ways to say when, and one that is called back. */
    static void times(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("times");
        producer.send(Servers.message("times", "tag", "k", "now"));
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = Pushing.taking(servers, "times", "times", "*", taken);
        Message seconds = Servers.message("times", "tag", "k", "seconds");
        seconds.setDelayTimeSec(3600);
        producer.send(seconds);
        Message milliseconds = Servers.message("times", "tag", "k", "milliseconds");
        milliseconds.setDelayTimeMs(1_800_000);
        producer.send(milliseconds);
        Message moment = Servers.message("times", "tag", "k", "moment");
        moment.setDeliverTimeMs(System.currentTimeMillis() + 2 * 3_600_000);
        producer.send(moment);
        Message recalled = Servers.message("times", "tag", "k", "recalled");
        recalled.setDelayTimeSec(600);
        SendResult result = producer.send(recalled);
        lines.print("recalled", producer.recallMessage("times", result.getRecallHandle()).equals(result.getMsgId()));
        for (int count = 1; count <= 4; count++) {
            int wanted = count;
            Servers.await(count + " messages", () -> taken.size() >= wanted);
            lines.pause("taken " + taken);
        }
        consumer.shutdown();
        producer.shutdown();
    }

    /** Groups that come late to a topic whose first messages are gone: from its start, its end, and a time. A group
     * that comes to a young topic gets all of it, whatever it asks for. */
    static void beginnings(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("beginnings");
        producer.createTopic("TBW102", "beginnings", 1, null);
        MessageQueue queue = new MessageQueue("beginnings", "broker-trimq", 0);
        Servers.await("the topic", () -> producer.fetchPublishMessageQueues("beginnings").contains(queue));
        List<String> young = new CopyOnWriteArrayList<>();
        producer.send(Servers.message("beginnings", "tag", "k", 0));
        DefaultMQPushConsumer early = from(servers, "young", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, null, young);
        Servers.await("the first message", () -> young.size() >= 1);
        early.shutdown();
        byte[] filling = new byte[20_000];
        new Random(1).nextBytes(filling);
        for (int i = 0; i < 10; i++) {
            producer.send(new Message("beginnings", "filling", filling));
        }
        lines.pause("filled");
        producer.send(Servers.message("beginnings", "tag", "k", 1));
        lines.pause("early");
        SendResult second = producer.send(Servers.message("beginnings", "tag", "k", 2));
        long secondMs = producer.viewMessage("beginnings", second.getOffsetMsgId()).getStoreTimestamp();
        String between = new SimpleDateFormat("yyyyMMddHHmmss").format(new Date(secondMs - 1_800_000));
        List<String> first = new CopyOnWriteArrayList<>();
        List<String> last = new CopyOnWriteArrayList<>();
        List<String> timed = new CopyOnWriteArrayList<>();
        List<DefaultMQPushConsumer> consumers = List.of(
                from(servers, "first", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, null, first),
                from(servers, "last", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, null, last),
                from(servers, "timed", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, between, timed));
        Servers.await("the queue for each",
                () -> consumers.stream().allMatch(each -> Pushing.shares(each, "beginnings") == 1));
        producer.send(Servers.message("beginnings", "tag", "k", 3));
        Servers.await("the last message", () -> first.contains("3") && last.contains("3") && timed.contains("3"));
        lines.print("start", producer.minOffset(queue) > 0, "young", young, "first", Pushing.numbers(first), "last",
                Pushing.numbers(last), "timed", Pushing.numbers(timed));
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        producer.shutdown();
    }

    private static DefaultMQPushConsumer from(
            Servers servers, String group, ConsumeFromWhere where, String time, List<String> taken) throws Exception {
        DefaultMQPushConsumer consumer = servers.pushed("beginnings-" + group, "beginnings", "tag");
        consumer.setConsumeFromWhere(where);
        if (time != null) {
            consumer.setConsumeTimestamp(time);
        }
        Pushing.take(consumer, taken);
        consumer.start();
        return consumer;
    }

    private Timed() {}
}
