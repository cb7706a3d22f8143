import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages that nobody can consume, and traces of those that somebody could. */
final class Failing {
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
