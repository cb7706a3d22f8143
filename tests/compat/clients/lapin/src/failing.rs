//! Dead letters, and mistakes.
use lapin::options::*;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ErrorKind};
use serde_json::{Value, json};

use crate::broker::*;
use crate::publishing::plain;

pub async fn dead_letters(broker: &mut Broker) -> Result<(), Failure> {
    let channel = broker.channel().await?;
    let to = |key: &str| {
        let mut arguments = FieldTable::default();
        arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
        arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(key.into()));
        arguments
    };
    let mut waiting = to("work");
    waiting.insert("x-message-ttl".into(), AMQPValue::LongInt(50));
    durable(&channel, "work", to("retry")).await?;
    durable(&channel, "retry", waiting).await?;
    publish_all(&channel, "work", &[b"hard".to_vec()], persistent()).await?;
    let mut consumer = consume(&channel, "work", false).await?;
    for attempt in 1..=3 {
        let message = next(&mut consumer).await?.ok_or("the consumer has ended")?;
        let headers = message.properties.headers().clone().unwrap_or_default();
        println!("{}", json!({"try": attempt, "deaths": deaths(&headers)}));
        if attempt < 3 {
            message.reject(BasicRejectOptions { requeue: false }).await?;
        } else {
            message.ack(BasicAckOptions::default()).await?;
        }
    }
    Ok(())
}

fn deaths(headers: &FieldTable) -> Vec<Value> {
    let mut found: Vec<Value> = match headers.inner().get("x-death") {
        Some(AMQPValue::FieldArray(entries)) => entries
            .as_slice()
            .iter()
            .map(plain)
            .map(|death| json!([death["queue"], death["reason"], death["count"]]))
            .collect(),
        _ => Vec::new(),
    };
    found.sort_by_key(Value::to_string);
    found
}

pub async fn mistakes(broker: &mut Broker) -> Result<(), Failure> {
    let connection = broker.connect().await?;
    durable(&connection.create_channel().await?, "mistaken", FieldTable::default()).await?;
    for did in ["declare passively", "declare otherwise", "publish to no exchange", "declare"] {
        let channel = connection.create_channel().await?;
        let code = match attempt(&channel, did).await {
            Ok(()) => 0,
            Err(refusal) => match refusal.kind() {
                ErrorKind::ProtocolError(told) => told.get_id(),
                _ => return Err(refusal.into()),
            },
        };
        println!("{}", json!({"did": did, "code": code}));
    }
    Ok(())
}

async fn attempt(channel: &Channel, did: &str) -> lapin::Result<()> {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let (name, options) = match did {
        "declare passively" => ("missing", passive),
        "declare otherwise" => ("mistaken", QueueDeclareOptions::default()),
        "publish to no exchange" => {
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            let options = BasicPublishOptions::default();
            channel.basic_publish("missing".into(), "".into(), options, b"", persistent()).await?.await?;
            ("mistaken", passive) // not reached: the publisher's confirm fails with the channel
        }
        _ => ("mistaken", QueueDeclareOptions::durable()),
    };
    channel.queue_declare(name.into(), options, FieldTable::default()).await?;
    Ok(())
}
