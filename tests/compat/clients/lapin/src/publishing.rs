//! What a publisher hears, and what becomes of bodies, headers and transactions.
use std::collections::BTreeMap;

use lapin::options::*;
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use serde_json::{Value, json};

use crate::Options;
use crate::broker::*;

pub async fn confirms(broker: &mut Broker, options: &Options) -> Result<(), Failure> {
    let count = options["count"].parse()?;
    let channel = broker.channel().await?;
    durable(&channel, "confirms", FieldTable::default()).await?;
    println!("{}", publish_all(&channel, "confirms", &numbered(count), persistent()).await?);
    let mut consumer = consume(&channel, "confirms", false).await?;
    let came = take(&mut consumer, count).await?;
    acknowledge(&came).await?;
    println!("{}", json!({"read": texts(&came)}));
    let mut limits = FieldTable::default();
    limits.insert("x-max-length".into(), AMQPValue::LongInt(1));
    limits.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let full = own(&channel, limits).await?;
    let bodies = [b"first".to_vec(), b"second".to_vec()];
    println!("{}", publish_all(&channel, &full, &bodies, persistent()).await?);
    Ok(())
}

pub async fn returns(broker: &mut Broker) -> Result<(), Failure> {
    let channel = broker.channel().await?;
    println!("{}", publish_all(&channel, "nowhere", &[b"lost".to_vec()], persistent()).await?);
    Ok(())
}

pub async fn bodies(broker: &mut Broker, options: &Options) -> Result<(), Failure> {
    let channel = broker.channel().await?;
    let queue = own(&channel, FieldTable::default()).await?;
    let mut sent = Vec::new();
    for size in options["sizes"].split(',') {
        sent.push((0..size.parse()?).map(|i: usize| (i * 31 % 251) as u8).collect::<Vec<u8>>());
    }
    publish_all(&channel, &queue, &sent, persistent()).await?;
    let mut consumer = consume(&channel, &queue, true).await?;
    let came = take(&mut consumer, sent.len()).await?;
    let sizes: Vec<usize> = came.iter().map(|message| message.data.len()).collect();
    let intact = came.iter().zip(&sent).all(|(message, body)| message.data == *body);
    println!("{}", json!({"sizes": sizes, "intact": intact}));
    Ok(())
}

pub async fn headers(broker: &mut Broker) -> Result<(), Failure> {
    let channel = broker.channel().await?;
    let queue = own(&channel, FieldTable::default()).await?;
    let mut inner = FieldTable::default();
    inner.insert("b".into(), AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::Boolean(false)])));
    let list = vec![AMQPValue::LongInt(1), AMQPValue::LongString("a".into()), AMQPValue::FieldTable(inner)];
    let mut table = FieldTable::default();
    for (name, value) in [
        ("text", AMQPValue::LongString("é".into())),
        ("small", AMQPValue::LongInt(1)),
        ("large", AMQPValue::LongLongInt(1 << 40)),
        ("half", AMQPValue::Double(0.5)),
        ("flag", AMQPValue::Boolean(true)),
        ("none", AMQPValue::Void),
        ("list", AMQPValue::FieldArray(FieldArray::from(list))),
    ] {
        table.insert(name.into(), value);
    }
    let properties = persistent().with_headers(table).with_priority(3).with_message_id("m".into());
    publish_all(&channel, &queue, &[Vec::new()], properties).await?;
    let message = channel.basic_get(queue.as_str().into(), BasicGetOptions { no_ack: true }).await?;
    let found = message.ok_or("nothing is there")?.delivery.properties;
    let headers = found.headers().as_ref().ok_or("there are no headers")?;
    println!(
        "{}",
        json!({
            "headers": plain(&AMQPValue::FieldTable(headers.clone())), "priority": found.priority(),
            "id": found.message_id().as_ref().map(|id| id.as_str()),
        })
    );
    Ok(())
}

/// The value as JSON.
pub fn plain(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(flag) => json!(flag),
        AMQPValue::LongInt(number) => json!(number),
        AMQPValue::LongLongInt(number) => json!(number),
        AMQPValue::Double(number) => json!(number),
        AMQPValue::LongString(words) => json!(words.to_string()),
        AMQPValue::FieldArray(items) => items.as_slice().iter().map(plain).collect(),
        AMQPValue::FieldTable(table) => {
            let items: BTreeMap<&str, Value> =
                table.inner().iter().map(|(name, item)| (name.as_str(), plain(item))).collect();
            json!(items)
        }
        AMQPValue::Void => Value::Null,
        other => json!(format!("{other:?}")),
    }
}

pub async fn transactions(broker: &mut Broker) -> Result<(), Failure> {
    let connection = broker.connect().await?;
    let channel = connection.create_channel().await?;
    let other = connection.create_channel().await?;
    let queue = own(&other, FieldTable::default()).await?;
    let publish = |body: &'static [u8]| {
        channel.basic_publish("".into(), queue.as_str().into(), BasicPublishOptions::default(), body, persistent())
    };
    channel.tx_select().await?;
    publish(b"rolled back").await?.await?;
    println!("{}", json!({"ready": ready(&other, &queue).await?, "after": "publish"}));
    channel.tx_rollback().await?;
    println!("{}", json!({"ready": ready(&other, &queue).await?, "after": "rollback"}));
    publish(b"kept").await?.await?;
    channel.tx_commit().await?;
    println!("{}", json!({"ready": ready(&other, &queue).await?, "after": "commit"}));
    let message = other.basic_get(queue.as_str().into(), BasicGetOptions { no_ack: true }).await?;
    println!("{}", json!({"read": text(&message.ok_or("nothing is there")?.delivery.data)}));
    Ok(())
}
