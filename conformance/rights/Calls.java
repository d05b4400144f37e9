import java.util.*;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

/** The calls that user interfaces for Kafka make; a line for each with what came of it. */
public class Calls {
  static void say(String name, Callable<Object> call) {
    String outcome;
    try {
      outcome = "ok " + call.call();
    } catch (Exception error) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      outcome = "failed " + cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }
    System.out.println("CALL " + name + " " + outcome.replace("\n", " "));
  }

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    try (java.io.FileReader file = new java.io.FileReader(args[1])) {
      settings.load(file);
    }
    settings.put("bootstrap.servers", args[0]);
    settings.put("default.api.timeout.ms", "20000");
    settings.put("request.timeout.ms", "10000");
    String topic = args[2];
    TopicPartition first = new TopicPartition(topic, 0);
    try (Admin admin = Admin.create(settings)) {
      boolean may = args.length > 3;
      if (may) {
        prepare(admin, settings, topic);
      }
      var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
      int broker = cluster.controller().get().id();
      String id = "" + broker;
      say("describeCluster", () -> cluster.clusterId().get().length() + " " + cluster.authorizedOperations().get());
      say("listTopics", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains(topic));
      say("describeTopics", () -> admin.describeTopics(List.of(topic),
          new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().get(topic)
          .authorizedOperations().size());
      say("describeConfigs topic", () -> documented(admin, new ConfigResource(ConfigResource.Type.TOPIC, topic)));
      say("describeConfigs broker", () -> documented(admin, new ConfigResource(ConfigResource.Type.BROKER, id)));
      say("describeLogDirs", () -> admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker)
          .values().iterator().next().replicaInfos().containsKey(first));
      say("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(
          List.of(new TopicPartitionReplica(topic, 0, broker))).all().get().size());
      for (var spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
          OffsetSpec.forTimestamp(0), OffsetSpec.earliestLocal(), OffsetSpec.latestTiered())) {
        say("listOffsets " + spec.getClass().getSimpleName(),
            () -> admin.listOffsets(Map.of(first, spec)).all().get().get(first).offset());
      }
      say("listGroups", () -> admin.listGroups().all().get().size());
      say("listConsumerGroups", () -> admin.listConsumerGroups().all().get().size());
      say("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of("calls"),
          new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all().get().get("calls")
          .authorizedOperations().size());
      say("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets("calls")
          .partitionsToOffsetAndMetadata().get().size());
      say("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size() >= 0);
      say("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size() >= 0);
      say("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get().size() >= 0);
      say("describeFeatures", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().size() > 0);
      say("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().leaderId() == broker);
      say("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get().size());
      say("describeProducers", () -> admin.describeProducers(List.of(first)).all().get().size());
      say("listTransactions", () -> admin.listTransactions().all().get().size() >= 0);
      say("describeTransactions", () -> admin.describeTransactions(List.of("calls")).all().get().get("calls").state());
      say("listConfigResources", () -> admin.listConfigResources().all().get().size() > 0);
      say("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions().get().size());
      var change = new AlterConfigOp(new ConfigEntry("retention.ms", "86400000"), AlterConfigOp.OpType.SET);
      var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
      say("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get());
      say("createTopics", () -> admin.createTopics(List.of(new NewTopic("of-calls", 1, (short) 1))).all().get());
      say("createPartitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
      say("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("calls",
          Map.of(first, new OffsetAndMetadata(0))).all().get());
      say("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("calls", Set.of(first)).all().get());
      say("deleteRecords", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(1))).all().get());
      say("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("calls")).all().get());
      var acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
          new AccessControlEntry("User:calls", "*", AclOperation.READ, AclPermissionType.ALLOW));
      say("createAcls", () -> admin.createAcls(List.of(acl)).all().get());
      say("deleteAcls", () -> admin.deleteAcls(List.of(acl.toFilter())).all().get().size());
      var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "calls"));
      var quota = new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6)));
      say("alterClientQuotas", () -> admin.alterClientQuotas(List.of(quota)).all().get());
      say("deleteTopics", () -> admin.deleteTopics(List.of("of-calls")).all().get());
    }
  }

  static void prepare(Admin admin, Properties settings, String topic) throws Exception {
    admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
    settings.put("transactional.id", "calls");
    try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      producer.initTransactions();
      producer.beginTransaction();
      producer.send(new ProducerRecord<>(topic, 0, "key", "value")).get();
      producer.commitTransaction();
    }
    settings.remove("transactional.id");
    admin.alterConsumerGroupOffsets("calls", Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1))).all().get();
  }

  static Object documented(Admin admin, ConfigResource resource) throws Exception {
    var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
    return admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries().size() > 10;
  }
}
