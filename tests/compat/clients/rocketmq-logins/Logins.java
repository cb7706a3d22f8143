import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** Sends and reads a message with signed requests: `Logins NAMES - user=… secret=… topic=… group=…`. Prints one JSON
 * object. Without a user the requests are not signed. */
public class Logins {
    public static void main(String[] words) throws Exception {
        String user = "", secret = "", topic = "", group = "";
        for (String word : words) {
            if (word.startsWith("user=")) user = word.substring(5);
            if (word.startsWith("secret=")) secret = word.substring(7);
            if (word.startsWith("topic=")) topic = word.substring(6);
            if (word.startsWith("group=")) group = word.substring(6);
        }
        RPCHook hook = user.isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(user, secret));
        DefaultMQProducer producer = new DefaultMQProducer(group + "-producers", hook);
        producer.setNamesrvAddr(words[0]);
        producer.setSendMsgTimeout(30_000);
        producer.setMqClientApiTimeout(30_000);
        producer.start();
        String sent;
        try {
            sent = producer.send(new Message(topic, "hello".getBytes(StandardCharsets.UTF_8))).getSendStatus().name();
        } catch (Exception error) {
            sent = String.valueOf(error.getMessage());
        }
        String read = "";
        if (sent.equals("SEND_OK")) {
            BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
            DefaultMQPushConsumer consumer =
                    new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
            consumer.setNamesrvAddr(words[0]);
            consumer.setMqClientApiTimeout(30_000);
            consumer.subscribe(topic, "*");
            consumer.setConsumeFromWhere(
                    org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.registerMessageListener((MessageListenerConcurrently) (found, context) -> {
                found.forEach(each -> bodies.add(new String(each.getBody(), StandardCharsets.UTF_8)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            read = String.valueOf(bodies.poll(60, TimeUnit.SECONDS));
            consumer.shutdown();
        }
        producer.shutdown();
        System.out.println("{\"sent\": \"" + escaped(sent) + "\", \"read\": \"" + escaped(read) + "\"}");
        System.exit(0);
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\"", "'").replace("\n", "\\n").replace("\r", "");
    }
}
