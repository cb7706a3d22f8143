import static java.util.stream.Collectors.toMap;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The ways to send, each read back. */
final class Sending {
    private static final int COUNT = 20;

    /** Also found by their ids and keys. */
    static void sync(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("sync");
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < COUNT; i++) {
            Message message = Servers.message("sync", "tag", "key" + i, i);
            message.putUserProperty("colour", "blue " + i);
            results.add(producer.send(message));
        }
        lines.print("statuses", new TreeSet<>(results.stream().map(each -> each.getSendStatus().name()).toList()),
                "queues", new TreeSet<>(results.stream().map(each -> each.getMessageQueue().getQueueId()).toList()));
        lines.print("read", servers.read("sync", COUNT).stream().collect(toMap(Servers::text, message -> List.of(
                message.getTags(), message.getKeys(), message.getUserProperty("colour")))));
        SendResult one = results.get(7);
        MessageExt byPlace = producer.viewMessage("sync", one.getOffsetMsgId());
        MessageExt byId = producer.viewMessage("sync", one.getMsgId());
        List<MessageExt> byKey = producer.queryMessage("sync", "key7", 10, 0, Long.MAX_VALUE / 2).getMessageList();
        lines.print("place", Servers.text(byPlace), "id", Servers.text(byId),
                "key", byKey.stream().map(Servers::text).toList(), "same", byId.getMsgId().equals(one.getMsgId()));
        producer.shutdown();
    }

    static void async(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("async");
        producer.send(Servers.message("async", "tag", "k", "first")); // finds the route
        CountDownLatch answers = new CountDownLatch(COUNT);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < COUNT; i++) {
            producer.send(Servers.message("async", "tag", "k", i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers.countDown();
                }

                @Override
                public void onException(Throwable reason) {
                    failure.set(reason);
                }
            });
        }
        lines.print("answered", answers.await(Servers.PATIENCE_S, TimeUnit.SECONDS), "failure", failure.get(),
                "read", servers.readTexts("async", COUNT + 1));
        producer.shutdown();
    }

    static void oneWay(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("oneway");
        producer.send(Servers.message("oneway", "tag", "k", "first"));
        for (int i = 0; i < COUNT; i++) {
            producer.sendOneway(Servers.message("oneway", "tag", "k", i));
        }
        lines.print("read", servers.readTexts("oneway", COUNT + 1));
        producer.shutdown();
    }

    /** A batch lies in one queue, one after the other. */
    static void batch(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("batch");
        List<Message> messages = IntStream.range(0, COUNT)
                .mapToObj(i -> Servers.message("batch", "tag", "k" + i, i)).toList();
        SendResult result = producer.send(new ArrayList<>(messages));
        List<MessageExt> read = servers.read("batch", COUNT);
        lines.print("ids", result.getMsgId().split(",").length, "places", result.getOffsetMsgId().split(",").length,
                "queues", new TreeSet<>(read.stream().map(MessageExt::getQueueId).toList()).size(),
                "offsets", read.stream().map(MessageExt::getQueueOffset).toList(),
                "read", read.stream().map(Servers::text).toList());
        producer.shutdown();
    }

    /** The client compresses what is larger than 4 KiB; more than 4 MiB it refuses itself, and the broker what passes it. */
    static void large(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("large");
        producer.setMaxMessageSize(6 << 20);
        byte[] plain = new byte[1 << 20];
        new java.util.Random(1).nextBytes(plain);
        byte[] compressible = new byte[3 << 20];
        Arrays.fill(compressible, (byte) 'x');
        producer.send(new Message("large", plain));
        producer.send(new Message("large", compressible));
        Set<String> intact = new TreeSet<>();
        for (MessageExt message : servers.read("large", 2)) {
            boolean isSame = Arrays.equals(message.getBody(), message.getBody().length == plain.length ? plain : compressible);
            intact.add(message.getBody().length + " " + isSame);
        }
        byte[] tooLarge = new byte[(4 << 20) + 1];
        new java.util.Random(2).nextBytes(tooLarge);
        lines.print("intact", intact, "refused", refusal(producer, new Message("large", tooLarge)),
                "named", refusal(producer, new Message("no/such", plain)));
        producer.shutdown();
    }

    static String refusal(DefaultMQProducer producer, Message message) throws Exception {
        try {
            producer.send(message);
            return "none";
        } catch (MQBrokerException refused) {
            return "code " + refused.getResponseCode();
        } catch (MQClientException refused) {
            return refused.getCause() instanceof MQBrokerException cause
                    ? "code " + cause.getResponseCode() : refused.getClass().getSimpleName();
        }
    }

    private Sending() {}
}
