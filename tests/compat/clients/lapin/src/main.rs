//! Runs one scenario with lapin: `client ADDRESS SCENARIO [name=value ...]`. Prints JSON, a line each; fails with a
//! sentence.
mod broker;
mod consuming;
mod failing;
mod many;
mod publishing;

use std::collections::HashMap;

use broker::{Broker, Failure};

pub type Options = HashMap<String, String>;

async fn run(broker: &mut Broker, scenario: &str, options: &Options) -> Result<(), Failure> {
    match scenario {
        "confirms" => publishing::confirms(broker, options).await,
        "returns" => publishing::returns(broker).await,
        "bodies" => publishing::bodies(broker, options).await,
        "headers" => publishing::headers(broker).await,
        "transactions" => publishing::transactions(broker).await,
        "prefetch" => consuming::prefetch(broker).await,
        "cut" => consuming::cut(broker).await,
        "rpc" => consuming::rpc(broker, options).await,
        "cancelled" => consuming::cancelled(broker).await,
        "dead-letters" => failing::dead_letters(broker).await,
        "mistakes" => failing::mistakes(broker).await,
        "many" => many::many(broker, options).await,
        _ => Err("there is no such scenario".into()),
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, scenario, rest @ ..] = words.as_slice() else {
        eprintln!("usage: client ADDRESS SCENARIO [name=value ...]");
        std::process::exit(2);
    };
    let pairs = rest.iter().filter_map(|word| word.split_once('='));
    let options = pairs.map(|(name, value)| (name.into(), value.into())).collect();
    let mut broker = Broker::new(address);
    if let Err(failure) = run(&mut broker, scenario, &options).await {
        eprintln!("scenario {scenario} failed: {failure}");
        std::process::exit(1);
    }
    broker.disconnect().await;
    std::process::exit(0); // whatever of the client still runs is not waited for
}
