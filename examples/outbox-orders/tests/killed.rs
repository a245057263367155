//! The service as people see it: orders are placed while it runs, while it does not, and while it is killed. Each is billed once.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::process::Child;

/// Nothing here takes so long: what does is stuck.
const PATIENCE: Duration = Duration::from_mins(1);

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outbox-orders"));
    command.env("OUTBOX_DIR", folder);
    command
}

fn start(folder: &Path) -> Child {
    tokio::process::Command::from(program(folder))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn says(folder: &Path, words: &[&str]) -> String {
    let mut command = tokio::process::Command::from(program(folder));
    let output = command.args(words).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_order_is_billed_once_whatever_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    says(folder, &["order", "ada", "tea", "1"]).await;
    assert!(says(folder, &["status"]).await.contains("1 events wait"));

    for round in 0..4_u64 {
        let mut service = start(folder);
        for pieces in ["1", "2", "3"] {
            says(folder, &["order", "bob", "tea", pieces]).await;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..400) + 50 * round)).await;
        service.kill().await.unwrap();
    }
    let _service = start(folder);
    let billed = async {
        loop {
            let status = says(folder, &["status"]).await;
            if status.contains("13 orders, 13 of them billed") && status.contains("0 events wait") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, billed)
        .await
        .expect("some order was not billed");

    let url = format!("sqlite:{}", folder.join("shop.db").display());
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let bills: i64 = sqlx::query_scalar("SELECT count(*) FROM bills")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(bills, 13, "none has two");
}
