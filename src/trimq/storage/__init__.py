"""Storage: file access, group commit, tables, and the log layouts of Kafka, RocketMQ and AMQP; knows no protocol."""
