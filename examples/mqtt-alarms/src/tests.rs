//! The house, without a server.

use std::error::Error;

use ruststream::testing::TestApp;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

async fn start() -> Result<TestApp, Box<dyn Error>> {
    // Nobody connects to it.
    Ok(TestApp::start_paused(house(MqttBroker::new("mqtt://localhost:1"))).await?)
}

#[tokio::test]
async fn a_hot_room_is_an_alarm_that_stays() -> TestResult {
    let test = start().await?;

    test.publish("house/kitchen/heat", &71.5).await?;
    test.publish("house/cellar/heat", &12.0).await?;
    test.settled().await;

    let alarm = Alarm {
        room: "kitchen".to_owned(),
        degrees: 71.5,
    };
    assert_eq!(test.published::<Alarm>("alarms/kitchen"), [alarm]);
    let options = test.raw_published("alarms/kitchen")[0]
        .options::<MqttOptions>()
        .cloned();
    assert_eq!(options, Some(MqttOptions::new().retain()));
    assert!(test.published::<Alarm>("alarms/cellar").is_empty());
    assert_eq!(test.calls::<Alarm>("alarms/+").len(), 1);
    Ok(())
}

#[tokio::test]
async fn what_is_no_number_is_given_up() -> TestResult {
    let test = start().await?;

    test.publish_bytes("house/attic/heat", "hot").await?;
    test.settled().await;

    assert_eq!(test.dead_letters("house/+/heat").len(), 1);
    Ok(())
}
