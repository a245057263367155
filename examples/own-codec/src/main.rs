//! A partner speaks JSON behind a checksum. What deals with the partner has a codec of its own for that; the rest of the service
//! speaks plain JSON.

use ruststream::codec::{Codec, CodecError, Given, OwnCodec, Wanted};
use ruststream::prelude::*;
use ruststream::transport::PublishError;

/// JSON behind four bytes: the sum of all others.
#[derive(Debug, Clone, Copy)]
struct Summed;

impl OwnCodec for Summed {
    fn content_type(&self) -> &'static str {
        "application/vnd.partner.summed"
    }

    fn decode<'a>(&self, bytes: &'a [u8], wanted: Wanted<'_, 'a>) -> Result<(), CodecError> {
        let Some((sum, json)) = bytes.split_first_chunk() else {
            return Err(CodecError::new("it is too short for a checksum"));
        };
        if u32::from_be_bytes(*sum) != sum_of(json) {
            return Err(CodecError::new("its checksum is wrong"));
        }
        let mut json = serde_json::Deserializer::from_slice(json);
        wanted.read(&mut json)?;
        // Nothing may stand behind the value.
        json.end().map_err(refused)
    }

    fn encode(&self, given: Given<'_>, into: &mut Vec<u8>) -> Result<(), CodecError> {
        let json = serde_json::to_vec(&given).map_err(refused)?;
        into.extend_from_slice(&sum_of(&json).to_be_bytes());
        into.extend_from_slice(&json);
        Ok(())
    }
}

fn refused(error: serde_json::Error) -> CodecError {
    CodecError::new(error.to_string()).with_cause(error)
}

fn sum_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(u32::from(*byte)))
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Parcel {
    id: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    parcel: u64,
}

/// Passes a parcel of the partner on within the house, in JSON, and gives the partner a receipt in the partner's own format.
#[subscriber("partner.parcels", reply = "partner.receipts")]
async fn receive(parcel: Parcel, house: Out<Parcel>) -> Result<Receipt, PublishError> {
    house.with_codec(Codec::Json).publish("parcels", &parcel).await?;
    Ok(Receipt { parcel: parcel.id })
}

/// Stores a parcel.
#[subscriber("parcels")]
#[allow(clippy::print_stdout, reason = "an example has no store")]
async fn store(parcel: Parcel) {
    println!("parcel {} is in the store", parcel.id);
}

#[ruststream::app]
fn app() -> RustStream {
    RustStream::new(AppInfo::new("parcels", env!("CARGO_PKG_VERSION"))).with_broker(MemoryBroker::new(), |broker| {
        broker.include(store);
        // What is included in here reads and writes the partner's format; a message that says it is JSON is read as JSON.
        broker.codec(Codec::own(Summed), |broker| {
            broker.include(receive);
        });
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use ruststream::testing::TestApp;

    use super::*;

    type TestResult = Result<(), Box<dyn Error>>;

    #[tokio::test]
    async fn a_parcel_of_the_partner_is_stored_and_receipted() -> TestResult {
        let test = TestApp::start_paused(app()).await?;

        let mut sent = Vec::new();
        Codec::own(Summed).encode(&Parcel { id: 7 }, &mut sent)?;
        test.publish_bytes("partner.parcels", sent).await?;
        test.settled().await;

        assert_eq!(test.calls::<Parcel>("store")[0].message, Parcel { id: 7 });
        let receipt = &test.raw_published("partner.receipts")[0];
        assert_eq!(
            receipt.headers.get_str("content-type"),
            Some("application/vnd.partner.summed")
        );
        let read: Receipt = Codec::own(Summed).decode(&receipt.payload)?;
        assert_eq!(read, Receipt { parcel: 7 });
        Ok(())
    }

    #[tokio::test]
    async fn a_wrong_checksum_is_a_dead_letter_that_says_so() -> TestResult {
        let test = TestApp::start_paused(app()).await?;

        test.publish_bytes("partner.parcels", b"\0\0\0\0{\"id\":7}".as_slice())
            .await?;
        test.settled().await;

        let dead = test.dead_letters("partner.parcels");
        assert!(dead[0].error.contains("its checksum is wrong"), "{}", dead[0].error);
        assert!(test.raw_calls("store").is_empty());
        Ok(())
    }
}
