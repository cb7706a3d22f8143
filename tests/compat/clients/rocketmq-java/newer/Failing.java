import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages that nobody can consume, and traces of those that somebody could. */
final class Failing {
    private static final int RETRIES = 16;

    /** After each try the message waits at a level of its own; the test moves the time by as much. */
    static void deadLetter(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("deadletter");
        String id = producer.send(Servers.message("deadletter", "tag", "k", "bad")).getMsgId();
        List<Integer> tries = new CopyOnWriteArrayList<>();
        boolean[] isMended = {false};
        DefaultMQPushConsumer consumer = servers.pushed("deadletter", "deadletter", "*");
        consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> tries.add(message.getReconsumeTimes()));
            return isMended[0] ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        for (int retry = 0; retry < RETRIES; retry++) {
            MessageQueue level = new MessageQueue("SCHEDULE_TOPIC_XXXX", "broker-trimq", 2 + retry);
            Servers.await("a message that waits at level " + (3 + retry), () -> producer.maxOffset(level) == 1);
            lines.pause("tried " + tries.size());
        }
        MessageExt dead = servers.read("%DLQ%deadletter", 1).get(0);
        lines.print("tries", tries, "dead", Servers.text(dead), "kept", dead.getMsgId().equals(id),
                "origin", dead.getProperty("RETRY_TOPIC"));
        isMended[0] = true;
        producer.send(new Message(dead.getProperty("RETRY_TOPIC"), dead.getTags(), dead.getKeys(), dead.getBody()));
        Servers.await("it again", () -> tries.size() > RETRIES + 1);
        lines.print("again", tries.get(RETRIES + 1));
        consumer.shutdown();
        producer.shutdown();
    }

    /** A message that fails in order holds those behind it, until it has been tried often enough. */
    static void blocked(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("blocked");
        producer.createTopic("TBW102", "blocked", 1, null);
        MessageQueue queue = new MessageQueue("blocked", "broker-trimq", 0);
        Servers.await("the topic", () -> producer.fetchPublishMessageQueues("blocked").contains(queue));
        for (String text : List.of("good", "bad", "behind")) {
            producer.send(Servers.message("blocked", "tag", "k", text));
        }
        List<String> tried = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = servers.pushed("blocked", "blocked", "*");
        consumer.setMaxReconsumeTimes(3);
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.setMessageListener((MessageListenerOrderly) (messages, context) -> {
            tried.add(Servers.text(messages.get(0)));
            return Servers.text(messages.get(0)).equals("bad")
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        Servers.await("the message behind", () -> tried.contains("behind"));
        lines.print("tried", tried, "dead", servers.readTexts("%DLQ%blocked", 1));
        consumer.shutdown();
        producer.shutdown();
    }

    /** A producer that is told to writes a line about each message to a topic of its own. */
    static void trace(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.started(new DefaultMQProducer("trace", true, null));
        String id = producer.send(Servers.message("trace", "tag", "k", "traced")).getMsgId();
        String found = Servers.text(servers.read("RMQ_SYS_TRACE_TOPIC", 1).get(0));
        lines.print("traced", found.contains(id), "kind", found.split("\u0001")[0]);
        producer.shutdown();
    }

    private Failing() {}
}
