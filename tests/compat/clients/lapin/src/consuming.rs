//! What a consumer gets, and when; questions and answers.
use lapin::message::Delivery;
use lapin::options::*;
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use serde_json::json;

use crate::Options;
use crate::broker::*;

pub async fn prefetch(broker: &mut Broker) -> Result<(), Failure> {
    let channel = broker.channel().await?;
    let queue = own(&channel, FieldTable::default()).await?;
    publish_all(&channel, &queue, &numbered(10), persistent()).await?;
    channel.basic_qos(3, BasicQosOptions::default()).await?;
    let mut consumer = consume(&channel, &queue, false).await?;
    let mut came = take(&mut consumer, 3).await?;
    println!("{}", json!({"came": texts(&came), "ready": ready(&channel, &queue).await?}));
    came[1].ack(BasicAckOptions { multiple: true }).await?;
    came.extend(take(&mut consumer, 2).await?);
    println!("{}", json!({"came": texts(&came), "ready": ready(&channel, &queue).await?}));
    Ok(())
}

fn flags(deliveries: &[Delivery]) -> Vec<(String, bool)> {
    deliveries.iter().map(|delivery| (text(&delivery.data), delivery.redelivered)).collect()
}

pub async fn cut(broker: &mut Broker) -> Result<(), Failure> {
    let channel = broker.channel().await?;
    durable(&channel, "cut", FieldTable::default()).await?;
    publish_all(&channel, "cut", &numbered(5), persistent()).await?;
    channel.basic_qos(3, BasicQosOptions::default()).await?;
    let mut consumer = consume(&channel, "cut", false).await?;
    println!("{}", json!({"came": flags(&take(&mut consumer, 3).await?)}));
    if let Ok(Some(_)) = next(&mut consumer).await {
        return Err("a message came where the connection should have been lost".into());
    }
    println!("{}", json!({"event": "lost"}));
    let again = broker.channel().await?;
    let mut consumer = consume(&again, "cut", false).await?;
    let came = take(&mut consumer, 5).await?;
    acknowledge(&came).await?;
    println!("{}", json!({"came": flags(&came)}));
    Ok(())
}

pub async fn rpc(broker: &mut Broker, options: &Options) -> Result<(), Failure> {
    let count: usize = options["count"].parse()?;
    let server = broker.channel().await?;
    durable(&server, "questions", FieldTable::default()).await?;
    let questions = consume(&server, "questions", false).await?;
    let serving = tokio::spawn(answer_all(server, questions, count));
    let client = broker.channel().await?;
    let mut replies = consume(&client, "amq.rabbitmq.reply-to", true).await?;
    for number in numbered(count) {
        let properties = persistent()
            .with_reply_to("amq.rabbitmq.reply-to".into())
            .with_correlation_id(text(&number).into());
        let options = BasicPublishOptions::default();
        client.basic_publish("".into(), "questions".into(), options, &number, properties).await?.await?;
    }
    let mut answers = vec![String::new(); count];
    for reply in take(&mut replies, count).await? {
        let asked = reply.properties.correlation_id().as_ref().ok_or("to which question?")?;
        answers[asked.as_str().parse::<usize>()?] = text(&reply.data);
    }
    println!("{}", json!({"answers": answers}));
    serving.await?
}

async fn answer_all(server: Channel, mut questions: Consumer, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        let question = next(&mut questions).await?.ok_or("the consumer has ended")?;
        let answer = (text(&question.data).parse::<u32>()? * 7).to_string();
        let reply_to = question.properties.reply_to().clone().ok_or("where does the answer go?")?;
        let asked = question.properties.correlation_id().clone().ok_or("which question is it?")?;
        let properties = persistent().with_correlation_id(asked);
        let options = BasicPublishOptions::default();
        server.basic_publish("".into(), reply_to, options, answer.as_bytes(), properties).await?.await?;
        question.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}

pub async fn cancelled(broker: &mut Broker) -> Result<(), Failure> {
    let channel = broker.channel().await?;
    durable(&channel, "doomed", FieldTable::default()).await?;
    let mut consumer = consume(&channel, "doomed", false).await?;
    broker.channel().await?.queue_delete("doomed".into(), QueueDeleteOptions::default()).await?;
    let event = if next(&mut consumer).await?.is_none() { "cancelled" } else { "a message" };
    println!("{}", json!({"event": event}));
    Ok(())
}
