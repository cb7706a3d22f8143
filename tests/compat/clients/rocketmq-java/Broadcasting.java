import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;

/** Consumers that each get everything. */
final class Broadcasting {
    /** Two members, each with a file of its own for how far it has read. */
    static void broadcast(Servers servers, Lines lines) throws Exception {
        Pushing.sendNumbers(servers, "broadcast", "tag", 0, 10);
        List<List<String>> taken = List.of(new CopyOnWriteArrayList<>(), new CopyOnWriteArrayList<>());
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (List<String> own : taken) {
            DefaultMQPushConsumer member = servers.pushed("broadcast", "broadcast", "*");
            toAll(member);
            member.setInstanceName("broadcast-" + members.size());
            Pushing.take(member, own);
            member.start();
            members.add(member);
        }
        Servers.await("10 for each", () -> taken.stream().allMatch(own -> own.size() >= 10));
        Pushing.sendNumbers(servers, "broadcast", "tag", 10, 30);
        Servers.await("all for each", () -> taken.stream().allMatch(own -> own.size() >= 30));
        lines.print("one", Pushing.numbers(taken.get(0)), "other", Pushing.numbers(taken.get(1)));
        members.forEach(DefaultMQPushConsumer::shutdown);
    }

    /** A member that comes and goes, each time in a process of its own; what is sent before it comes is told by `from=`
     * and `to=`. How far it has read is in a file of its own. */
    static void kept(Servers servers, Lines lines) throws Exception {
        int from = Integer.parseInt(servers.option("from"));
        int to = Integer.parseInt(servers.option("to"));
        Pushing.sendNumbers(servers, "kept", "tag", from, to);
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer member = servers.pushed("kept", "kept", "*");
        toAll(member);
        member.setInstanceName("kept");
        Pushing.take(member, taken);
        member.start();
        Servers.await("all that is new", () -> Pushing.numbers(taken).contains(to - 1) && taken.size() >= to - from);
        Servers.await("offsets that say so", () -> member.getDefaultMQPushConsumerImpl().getOffsetStore()
                .cloneOffsetTable("kept").values().stream().mapToLong(Long::longValue).sum() == to);
        member.shutdown();
        lines.print("taken", taken.stream().map(Integer::valueOf).sorted().toList());
    }

    /** The kind of a member has its name in another package in each version. */
    private static void toAll(DefaultMQPushConsumer member) {
        for (var model : member.getMessageModel().getDeclaringClass().getEnumConstants()) {
            if (model.name().equals("BROADCASTING")) {
                member.setMessageModel(model);
            }
        }
    }

    private Broadcasting() {}
}
