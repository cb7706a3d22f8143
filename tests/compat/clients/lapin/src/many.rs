//! Many queues with a message each.
use lapin::options::*;
use lapin::types::FieldTable;
use serde_json::json;

use crate::Options;
use crate::broker::*;

pub async fn many(broker: &mut Broker, options: &Options) -> Result<(), Failure> {
    let channel = broker.channel().await?;
    let count: usize = options["count"].parse()?;
    let names: Vec<String> = (0..count).map(|number| format!("many.{number}")).collect();
    for name in &names {
        durable(&channel, name, FieldTable::default()).await?;
    }
    println!("{}", json!({"did": "declare", "queues": names.len()}));
    let mut answers = Vec::new();
    for name in &names {
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let sent = channel.basic_publish("".into(), name.as_str().into(), options, name.as_bytes(), persistent());
        answers.push(sent.await?);
    }
    for answer in answers {
        if !answer.await?.is_ack() {
            return Err("a message was refused".into());
        }
    }
    let mut read = 0;
    for name in &names {
        let message = channel.basic_get(name.as_str().into(), BasicGetOptions { no_ack: true }).await?;
        read += usize::from(message.is_some_and(|message| text(&message.delivery.data) == *name));
    }
    println!("{}", json!({"did": "read", "queues": read}));
    let mut left = 0;
    for name in &names {
        left += channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await?;
    }
    println!("{}", json!({"did": "delete", "left": left}));
    Ok(())
}
