import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;

/** Questions that somebody answers, and one that nobody does. */
final class Requests {
    static void answered(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer asker = servers.producer("askers");
        DefaultMQProducer answerer = servers.producer("answerers");
        answerer.send(Servers.message("requests", "plain", "k", "first")); // who asks first of all tells who it is
        DefaultMQPushConsumer consumer = servers.pushed("answerers", "requests", "question");
        consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(question -> {
                try {
                    byte[] body = (Servers.text(question) + "!").getBytes(StandardCharsets.UTF_8);
                    answerer.send(MessageUtil.createReplyMessage(question, body));
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        String first = text(asker.request(Servers.message("requests", "question", "k", "one"), 40_000));
        List<String> called = new CopyOnWriteArrayList<>();
        asker.request(Servers.message("requests", "question", "k", "two"), new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                if (answer != null) { // which means only that the question was sent
                    called.add(text(answer));
                }
            }

            @Override
            public void onException(Throwable reason) {
                called.add(reason.toString());
            }
        }, 40_000);
        Servers.await("the second answer", () -> !called.isEmpty());
        lines.print("answers", List.of(first, called.get(0)), "silence", silence(asker));
        consumer.shutdown();
        asker.shutdown();
        answerer.shutdown();
    }

    private static String silence(DefaultMQProducer asker) throws Exception {
        try {
            return text(asker.request(Servers.message("requests", "to nobody", "k", "three"), 500));
        } catch (RequestTimeoutException late) {
            return "timeout";
        }
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private Requests() {}
}
