import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** The administrator's calls. Each prints what it was answered. */
final class Administration {
    /** Topics: make, describe, grow, set, cut, delete. */
    static void topics(Cluster cluster, Map<String, String> options) throws Exception {
        try (Admin admin = cluster.admin()) {
            Collection<Node> nodes = Cluster.get(admin.describeCluster().nodes());
            Node controller = Cluster.get(admin.describeCluster().controller());
            Lines.print("call", "describeCluster", "nodes", nodes.size(), "controller", controller.port());
            NewTopic topic = new NewTopic("governed", Optional.of(3), Optional.empty());
            topic.configs(Map.of("retention.ms", "86400000", "cleanup.policy", "compact,delete"));
            answer("createTopics", admin.createTopics(List.of(topic)).all());
            answer("createTopics again", admin.createTopics(List.of(topic)).all());
            answer("createTopics badly", admin.createTopics(List.of(new NewTopic("a/b", 1, (short) 1))).all());
            NewTopic replicated = new NewTopic("replicated", 1, (short) 3);
            answer("createTopics replicated", admin.createTopics(List.of(replicated)).all());
            describe(admin);
            answer("createPartitions", admin.createPartitions(Map.of("governed", NewPartitions.increaseTo(5))).all());
            answer("createPartitions less", admin.createPartitions(
                    Map.of("governed", NewPartitions.increaseTo(2))).all());
            describe(admin);
            settings(admin);
            cluster.sendNumbers("governed-numbers", 0, 10, 1);
            records(admin, new TopicPartition("governed-numbers", 0));
            answer("deleteTopics", admin.deleteTopics(List.of("governed", "governed-numbers")).all());
            answer("deleteTopics again", admin.deleteTopics(List.of("governed")).all());
        }
    }

    private static void answer(String call, KafkaFuture<?> pending) throws Exception {
        Lines.print("call", call, "refused", Cluster.refusal(pending));
    }

    private static void describe(Admin admin) throws Exception {
        TopicDescription found =
                Cluster.get(admin.describeTopics(List.of("governed")).allTopicNames()).get("governed");
        Lines.print("call", "describeTopics", "partitions", found.partitions().size(),
                "internal", found.isInternal(), "replicas", found.partitions().get(0).replicas().size(),
                "leader", found.partitions().get(0).leader().id());
    }

    private static void settings(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, "governed");
        show(admin, resource);
        answer("incrementalAlterConfigs", admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "5000"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.SUBTRACT)))).all());
        answer("incrementalAlterConfigs badly", admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET)))).all());
        show(admin, resource);
    }

    private static void show(Admin admin, ConfigResource resource) throws Exception {
        Config found = Cluster.get(admin.describeConfigs(List.of(resource)).all()).get(resource);
        ConfigEntry retention = found.get("retention.ms");
        Lines.print("call", "describeConfigs", "retention.ms", retention.value(), "source", retention.source(),
                "cleanup.policy", found.get("cleanup.policy").value(),
                "segment.bytes", found.get("segment.bytes").value());
    }

    private static void records(Admin admin, TopicPartition partition) throws Exception {
        answer("deleteRecords", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4))).all());
        Lines.print("call", "listOffsets",
                "earliest", offset(admin, partition, OffsetSpec.earliest()),
                "latest", offset(admin, partition, OffsetSpec.latest()));
        answer("deleteRecords too far", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(99))).all());
    }

    private static long offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return Cluster.get(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition)).offset();
    }

    /** Groups: list, describe, move, forget, delete; `protocol=` is classic or consumer. */
    static void groups(Cluster cluster, Map<String, String> options) throws Exception {
        String protocol = options.get("protocol");
        String group = "governed-" + protocol;
        TopicPartition partition = new TopicPartition(group, 0);
        cluster.createTopic(group, 2, Map.of());
        cluster.sendNumbers(group, 0, 10, 2);
        try (Admin admin = cluster.admin()) {
            try (KafkaConsumer<String, String> consumer =
                    cluster.consumer("group.id", group, "group.protocol", protocol, "client.id", "me")) {
                consumer.subscribe(List.of(group));
                Cluster.await("partitions", () -> {
                    consumer.poll(Cluster.A_MOMENT);
                    return consumer.assignment().size() == 2;
                });
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(3, "noted")));
                describeGroup(admin, group);
                answer("deleteConsumerGroups used", admin.deleteConsumerGroups(List.of(group)).all());
            }
            describeGroup(admin, group);
            committed(admin, group);
            answer("alterConsumerGroupOffsets", admin.alterConsumerGroupOffsets(
                    group, Map.of(partition, new OffsetAndMetadata(1))).all());
            committed(admin, group);
            answer("deleteConsumerGroupOffsets", admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
            committed(admin, group);
            List<String> listed = Cluster.get(admin.listConsumerGroups().all()).stream()
                    .map(ConsumerGroupListing::groupId).filter(group::equals).toList();
            Lines.print("call", "listConsumerGroups", "groups", listed);
            answer("deleteConsumerGroups", admin.deleteConsumerGroups(List.of(group)).all());
            answer("deleteConsumerGroups again", admin.deleteConsumerGroups(List.of(group)).all());
        }
    }

    private static void describeGroup(Admin admin, String group) throws Exception {
        ConsumerGroupDescription found =
                Cluster.get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
        Lines.print("call", "describeConsumerGroups", "state", found.state().toString(),
                "assignor", found.partitionAssignor(),
                "members", found.members().stream().map(member -> List.of(
                        member.clientId(), member.host(), member.assignment().topicPartitions().size())).toList());
    }

    private static void committed(Admin admin, String group) throws Exception {
        Map<String, Object> offsets = new TreeMap<>();
        Cluster.get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).forEach(
                (partition, place) -> offsets.put(partition.toString(), List.of(place.offset(), place.metadata())));
        Lines.print("call", "listConsumerGroupOffsets", "offsets", offsets);
    }

    /** Transactions, folders, replicas, quotas, credentials, access. */
    static void rest(Cluster cluster, Map<String, String> options) throws Exception {
        TopicPartition partition = new TopicPartition("rest", 0);
        cluster.createTopic("rest", 1, Map.of());
        try (Admin admin = cluster.admin();
                KafkaProducer<String, String> producer = cluster.producer("transactional.id", "rest")) {
            producer.initTransactions();
            producer.beginTransaction();
            Cluster.get(producer.send(new ProducerRecord<>("rest", "open")));
            transactions(admin, partition);
            answer("fenceProducers", admin.fenceProducers(List.of("rest")).all());
            transactions(admin, partition);
            folders(admin);
            answer("electLeaders", admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all());
            answer("alterPartitionReassignments", admin.alterPartitionReassignments(
                    Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(99))))).all());
            Lines.print("call", "listPartitionReassignments", "found",
                    Cluster.get(admin.listPartitionReassignments().reassignments()).size());
            answer("describeAcls", admin.describeAcls(AclBindingFilter.ANY).values());
            quotas(admin);
            credentials(admin);
        }
    }

    private static void transactions(Admin admin, TopicPartition partition) throws Exception {
        List<ProducerState> producers = Cluster.get(
                admin.describeProducers(List.of(partition)).partitionResult(partition)).activeProducers();
        Collection<TransactionListing> listed = Cluster.get(admin.listTransactions().all());
        Lines.print("call", "describeProducers", "open",
                producers.stream().filter(each -> each.currentTransactionStartOffset().isPresent()).count());
        Lines.print("call", "listTransactions", "states", listed.stream()
                .filter(each -> each.transactionalId().equals("rest")).map(TransactionListing::state).toList());
        Lines.print("call", "describeTransactions", "partitions",
                Cluster.get(admin.describeTransactions(List.of("rest")).description("rest")).topicPartitions().size());
    }

    private static void folders(Admin admin) throws Exception {
        int node = Cluster.get(admin.describeCluster().controller()).id();
        Cluster.get(admin.describeLogDirs(List.of(node)).allDescriptions()).get(node).values().forEach(folder ->
                Lines.print("call", "describeLogDirs", "topic",
                        folder.replicaInfos().keySet().stream().anyMatch(each -> each.topic().equals("rest"))));
    }

    private static void quotas(Admin admin) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "hungry"));
        answer("alterClientQuotas", admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
                entity, List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", 1e6))))).all());
        Lines.print("call", "describeClientQuotas", "quotas",
                Cluster.get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).get(entity));
    }

    private static void credentials(Admin admin) throws Exception {
        answer("alterUserScramCredentials", admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                "alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all());
        Lines.print("call", "describeUserScramCredentials", "users",
                Cluster.get(admin.describeUserScramCredentials().users()));
    }

    private Administration() {}
}
