import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Makes clients of one name server, and does with them what most scenarios need. */
final class Servers {
    static final int PATIENCE_S = 60;

    private final String names;
    private final Map<String, String> options;

    interface Question {
        boolean isSo() throws Exception;
    }

    Servers(String names, Map<String, String> options) {
        this.names = names;
        this.options = options;
    }

    String option(String name) {
        return options.get(name);
    }

    DefaultMQProducer producer(String group) throws Exception {
        return started(new DefaultMQProducer(group));
    }

    DefaultMQProducer started(DefaultMQProducer producer) throws Exception {
        producer.setSendMsgTimeout(20_000);
        pointed(producer);
        producer.start();
        return producer;
    }

    TransactionMQProducer transactional(String group) {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setSendMsgTimeout(20_000);
        return pointed(producer);
    }

    /** Not started: its listener is missing. */
    DefaultMQPushConsumer pushed(String group, String topic, String expression) throws Exception {
        DefaultMQPushConsumer consumer = pointed(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        return consumer;
    }

    DefaultLitePullConsumer pulled(String group) {
        DefaultLitePullConsumer consumer = pointed(new DefaultLitePullConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        return consumer;
    }

    /** Its timers run faster than in a long life: a first heartbeat that comes too late costs half a minute. */
    <T extends ClientConfig> T pointed(T client) {
        client.setNamesrvAddr(names);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        client.setMqClientApiTimeout(20_000);
        return client;
    }

    static Message message(String topic, String tag, Object key, Object body) {
        return new Message(topic, tag, String.valueOf(key), String.valueOf(body).getBytes(StandardCharsets.UTF_8));
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** So many messages, wherever in the topic, as a reader without a group finds them. */
    List<MessageExt> read(String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = pulled("reader-" + topic);
        consumer.start();
        try {
            consumer.assign(queues(consumer, topic)); // which begins at the first message
            List<MessageExt> found = new ArrayList<>();
            await(count + " messages of " + topic, () -> found.addAll(consumer.poll(100)) && found.size() >= count);
            return found;
        } finally {
            consumer.shutdown();
        }
    }

    List<String> readTexts(String topic, int count) throws Exception {
        return read(topic, count).stream().map(Servers::text).sorted().toList();
    }

    static Collection<MessageQueue> queues(DefaultLitePullConsumer consumer, String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>();
        await("the queues of " + topic, () -> queues.addAll(consumer.fetchMessageQueues(topic)));
        return queues;
    }

    static void await(String what, Question question) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!question.isSo()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited " + PATIENCE_S + " s for " + what);
            }
            Thread.sleep(5);
        }
    }
}
