//! What the scenarios share: connections, queues, publishing and taking.
use std::time::Duration;

use futures_lite::StreamExt;
use lapin::message::Delivery;
use lapin::options::*;
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use serde_json::{Value, json};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Broker {
    address: String,
    connections: Vec<Connection>,
}

impl Broker {
    pub fn new(address: &str) -> Self {
        Self { address: address.into(), connections: Vec::new() }
    }

    pub async fn connect(&mut self) -> Result<&Connection, Failure> {
        let address = format!("amqp://guest:guest@{}/%2f", self.address);
        self.connections.push(Connection::connect(&address, ConnectionProperties::default()).await?);
        Ok(self.connections.last().expect("it was pushed"))
    }

    /// One of a connection of its own, which confirms what is published.
    pub async fn channel(&mut self) -> Result<Channel, Failure> {
        let channel = self.connect().await?.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Whoever was lost before needs no farewell.
    /// Lapin sometimes waits for ever for the end of a connection that is closed already, so it is not waited for long.
    pub async fn disconnect(&self) {
        for connection in &self.connections {
            let _ = tokio::time::timeout(Duration::from_secs(5), connection.close(200, "done".into())).await;
        }
    }
}

pub async fn durable(channel: &Channel, name: &str, arguments: FieldTable) -> Result<(), Failure> {
    channel.queue_declare(name.into(), QueueDeclareOptions::durable(), arguments).await?;
    Ok(())
}

/// A queue that the broker names and that goes with its connection.
pub async fn own(channel: &Channel, arguments: FieldTable) -> Result<String, Failure> {
    let options = QueueDeclareOptions { exclusive: true, ..Default::default() };
    Ok(channel.queue_declare("".into(), options, arguments).await?.name().to_string())
}

pub async fn ready(channel: &Channel, queue: &str) -> Result<u32, Failure> {
    let options = QueueDeclareOptions { passive: true, ..Default::default() };
    Ok(channel.queue_declare(queue.into(), options, FieldTable::default()).await?.message_count())
}

pub fn persistent() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

/// Does not wait in between; counts the answers and prints what came back.
pub async fn publish_all(
    channel: &Channel,
    queue: &str,
    bodies: &[Vec<u8>],
    properties: BasicProperties,
) -> Result<Value, Failure> {
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let mut answers = Vec::new();
    for body in bodies {
        answers.push(channel.basic_publish("".into(), queue.into(), options, body, properties.clone()).await?);
    }
    let (mut confirmed, mut refused) = (0, 0);
    for answer in answers {
        let answer = answer.await?;
        *if answer.is_ack() { &mut confirmed } else { &mut refused } += 1;
        if let Some(back) = answer.take_message() {
            println!(
                "{}",
                json!({
                    "code": back.reply_code, "text": back.reply_text.as_str(),
                    "exchange": back.delivery.exchange.as_str(), "key": back.delivery.routing_key.as_str(),
                    "body": text(&back.delivery.data),
                })
            );
        }
    }
    Ok(json!({"confirmed": confirmed, "refused": refused}))
}

pub async fn consume(channel: &Channel, queue: &str, no_ack: bool) -> Result<Consumer, Failure> {
    let options = BasicConsumeOptions { no_ack, ..Default::default() };
    Ok(channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?)
}

/// Nothing where the consumer has ended.
pub async fn next(consumer: &mut Consumer) -> Result<Option<Delivery>, Failure> {
    Ok(tokio::time::timeout(PATIENCE, consumer.next()).await?.transpose()?)
}

pub async fn take(consumer: &mut Consumer, count: usize) -> Result<Vec<Delivery>, Failure> {
    let mut came = Vec::new();
    while came.len() < count {
        came.push(next(consumer).await?.ok_or("the consumer has ended")?);
    }
    Ok(came)
}

pub async fn acknowledge(deliveries: &[Delivery]) -> Result<(), Failure> {
    for delivery in deliveries {
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}

pub fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

pub fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| text(&delivery.data)).collect()
}

pub fn numbered(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| number.to_string().into_bytes()).collect()
}
