import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;

/** What the broker does for a consumer of 5.x: it hands out messages one by one. */
final class Popping {
    /** Two members of a group that pops; one message fails once. */
    static void popped(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("pop");
        producer.send(Servers.message("pop", "tag", "k", 0));
        MQClientInstance instance = producer.getDefaultMQProducerImpl().getMqClientFactory();
        String broker = instance.findBrokerAddressInPublish("broker-trimq");
        instance.getMQClientAPIImpl().setMessageRequestMode(broker, "pop", "pop", MessageRequestMode.POP, 0, 10_000);
        Map<String, List<Integer>> times = new ConcurrentHashMap<>();
        List<List<String>> taken = List.of(new CopyOnWriteArrayList<>(), new CopyOnWriteArrayList<>());
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (List<String> own : taken) {
            DefaultMQPushConsumer member = servers.pushed("pop", "pop", "*");
            member.setClientRebalance(false);
            member.setPopInvisibleTime(20_000); // what a member lets fall when queues are divided anew is back then
            member.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
                MessageExt message = messages.get(0);
                own.add(Servers.text(message));
                List<Integer> tries = times.computeIfAbsent(Servers.text(message), key -> new CopyOnWriteArrayList<>());
                tries.add(message.getReconsumeTimes());
                return Servers.text(message).equals("7") && tries.size() == 1
                        ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            member.start();
            members.add(member);
        }
        Servers.await("the first message", () -> times.size() == 1);
        for (int i = 1; i < 100; i++) {
            producer.send(Servers.message("pop", "tag", "k", i));
        }
        Servers.await("all messages", () -> times.size() == 100 && times.get("7").size() >= 2);
        lines.print("messages", Pushing.numbers(new ArrayList<>(times.keySet())), "failed once", times.get("7"),
                "others", times.values().stream().filter(each -> each.size() > 1).count() - 1,
                "each", taken.stream().allMatch(own -> !own.isEmpty()));
        members.forEach(DefaultMQPushConsumer::shutdown);
        producer.shutdown();
    }

    private Popping() {}
}
