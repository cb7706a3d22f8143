import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.config.ConfigResource;

/** The same, with scenarios of what older clients do not have. */
public final class NewerClient {
    public static void main(String[] arguments) {
        Client.SCENARIOS.put("patterns", NewerClient::patterns);
        Client.SCENARIOS.put("admin-newer", NewerClient::administration);
        Client.main(arguments);
    }

    /** A regular expression that the broker matches: topics that are there, then one that comes later. */
    static void patterns(Cluster cluster, Map<String, String> options) throws Exception {
        for (String topic : List.of("matched-a", "matched-b", "unmatched")) {
            cluster.sendNumbers(topic, 0, 1, 1);
        }
        Set<String> topics = new TreeSet<>();
        try (KafkaConsumer<String, String> consumer =
                cluster.consumer("group.id", "patterns", "group.protocol", "consumer")) {
            consumer.subscribe(new SubscriptionPattern("matched-[a-c]"));
            for (int expected = 2; expected <= 3; expected++) {
                int size = expected;
                Cluster.await(expected + " topics", () -> {
                    consumer.poll(Cluster.A_MOMENT).forEach(record -> topics.add(record.topic()));
                    return topics.size() >= size;
                });
                Lines.print("topics", topics);
                cluster.sendNumbers("matched-c", 0, 1, 1);
            }
        }
    }

    static void administration(Cluster cluster, Map<String, String> options) throws Exception {
        cluster.createTopic("listed", 1, Map.of("retention.ms", "1000"));
        try (Admin admin = cluster.admin();
                KafkaConsumer<String, String> consumer =
                        cluster.consumer("group.id", "listed", "group.protocol", "consumer")) {
            consumer.subscribe(List.of("listed"));
            Cluster.await("a partition", () -> {
                consumer.poll(Cluster.A_MOMENT);
                return !consumer.assignment().isEmpty();
            });
            Lines.print("call", "listGroups", "groups", Cluster.get(admin.listGroups().all()).stream()
                    .filter(group -> group.groupId().equals("listed")).map(NewerClient::told).toList());
            Lines.print("call", "listConfigResources", "topics", Cluster.get(admin.listConfigResources().all()).stream()
                    .filter(each -> each.type() == ConfigResource.Type.TOPIC && each.name().equals("listed"))
                    .map(ConfigResource::name).toList());
            Lines.print("call", "describeFeatures",
                    "refused", Cluster.refusal(admin.describeFeatures().featureMetadata()));
        }
    }

    private static List<String> told(GroupListing group) {
        return List.of(group.groupId(), group.type().orElseThrow().toString(),
                group.groupState().orElseThrow().toString());
    }

    private NewerClient() {}
}
