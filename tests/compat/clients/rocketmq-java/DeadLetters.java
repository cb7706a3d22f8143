import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages that are tried again and again, until they are given up. */
final class DeadLetters {
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

    private DeadLetters() {}
}
