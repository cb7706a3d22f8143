import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** A producer whose broker does not answer, refuses or is gone. At each pause the test does something to it. */
final class Troubles {
    private static final int TIMEOUT_MS = 2000;
    private static final int COUNT = 10;

    /** The broker stands still after the first pause, and goes on after the second. */
    static void stalled(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("stalled");
        producer.send(Servers.message("stalled", "tag", "k", "before"));
        lines.pause("sent");
        String failure = "none";
        long began = System.nanoTime();
        try {
            producer.send(Servers.message("stalled", "tag", "k", "meanwhile"), TIMEOUT_MS);
        } catch (RemotingException late) {
            failure = late.getMessage().contains("timeout") ? "timeout" : late.toString();
        }
        lines.print("failure", failure, "took", (System.nanoTime() - began) / 1_000_000);
        lines.pause("waited");
        lines.print("after", producer.send(Servers.message("stalled", "tag", "k", "after")).getSendStatus().name());
        producer.shutdown();
    }

    /** Both brokers have one queue of the topic `spread`. The second is content, refuses, syncs nothing, is gone. */
    static void elsewhere(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("spread");
        List<MessageQueue> queues = new ArrayList<>();
        Servers.await("two queues", () -> {
            queues.clear();
            queues.addAll(producer.fetchPublishMessageQueues("spread"));
            return queues.size() == 2;
        });
        MessageQueue second = queues.stream().filter(each -> each.getBrokerName().equals("broker-b")).findAny().get();
        lines.print("content", some(producer));
        lines.pause("refuse");
        lines.print("refused", some(producer), "ordered", ordered(producer, second));
        lines.pause("count");
        for (int i = 0; i < COUNT; i++) {
            producer.sendOneway(Servers.message("spread", "tag", "k", "one way"), second);
        }
        lines.pause("stall");
        lines.print("stalled", some(producer));
        producer.setRetryAnotherBrokerWhenNotStoreOK(true);
        lines.print("another", some(producer));
        producer.setRetryAnotherBrokerWhenNotStoreOK(false);
        lines.pause("end");
        lines.print("gone", some(producer));
        producer.shutdown();
    }

    /** How many messages each broker took, and what it said. */
    private static TreeMap<String, Integer> some(DefaultMQProducer producer) throws Exception {
        TreeMap<String, Integer> taken = new TreeMap<>();
        for (int i = 0; i < COUNT; i++) {
            SendResult result = producer.send(Servers.message("spread", "tag", "k", i));
            taken.merge(result.getMessageQueue().getBrokerName() + " " + result.getSendStatus(), 1, Integer::sum);
        }
        return taken;
    }

    /** Whoever chose the queue wants no other. */
    private static String ordered(DefaultMQProducer producer, MessageQueue wanted) throws Exception {
        try {
            return producer.send(Servers.message("spread", "tag", "k", "ordered"),
                    (queues, message, chosen) -> (MessageQueue) chosen, wanted).toString();
        } catch (MQBrokerException refused) {
            return "code " + refused.getResponseCode();
        }
    }

    private Troubles() {}
}
