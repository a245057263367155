//! What tests rely on: a server that comes back with its data, and a proxy that fails on demand.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use servers::{Instance, Kind, Proxy, Settings};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn ask(port: u16, request: &str, length: usize) -> std::io::Result<String> {
    let mut link = TcpStream::connect(("127.0.0.1", port))?;
    link.set_read_timeout(Some(Duration::from_millis(500)))?;
    link.write_all(request.as_bytes())?;
    let mut answer = vec![0; length];
    link.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn a_killed_server_comes_back_with_its_data_on_its_port() -> Result {
    let mut server = Instance::start(Kind::Redis, Settings { durable: true })?;
    let url = server.url();
    assert_eq!(ask(server.port(), "SET a 1\r\n", 3)?, "+OK");
    server.kill();
    assert!(ask(server.port(), "PING\r\n", 5).is_err());
    server.start_again()?;
    assert_eq!(server.url(), url);
    assert_eq!(ask(server.port(), "GET a\r\n", 5)?, "$1\r\n1");
    Ok(())
}

#[test]
fn a_paused_server_answers_when_it_goes_on() -> Result {
    let server = Instance::start(Kind::Redis, Settings::default())?;
    server.pause();
    assert!(ask(server.port(), "PING\r\n", 5).is_err());
    server.resume();
    assert_eq!(ask(server.port(), "PING\r\n", 5)?, "+PONG");
    Ok(())
}

#[test]
fn a_proxy_passes_stalls_refuses_and_loses_answers() -> Result {
    let server = Instance::start(Kind::Redis, Settings::default())?;
    let proxy = Proxy::to(server.port())?;
    assert_eq!(ask(proxy.port(), "PING\r\n", 5)?, "+PONG");

    proxy.stall();
    assert!(ask(proxy.port(), "PING\r\n", 5).is_err());
    proxy.heal();
    assert_eq!(ask(proxy.port(), "PING\r\n", 5)?, "+PONG");

    proxy.refuse();
    assert!(ask(proxy.port(), "PING\r\n", 5).is_err());
    proxy.heal();
    assert_eq!(ask(proxy.port(), "PING\r\n", 5)?, "+PONG");

    proxy.lose_answers();
    assert!(ask(proxy.port(), "SET lost 1\r\n", 3).is_err());
    proxy.heal();
    assert_eq!(ask(proxy.port(), "GET lost\r\n", 5)?, "$1\r\n1");

    let mut link = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    link.write_all(b"PING\r\n")?;
    link.read_exact(&mut [0; 7])?;
    proxy.cut();
    assert_eq!(link.read(&mut [0; 1]).unwrap_or(0), 0);
    Ok(())
}

#[test]
fn shared_servers_are_started_once() -> Result {
    let first = servers::shared(Kind::Redis)?;
    assert_eq!(servers::shared(Kind::Redis)?, first);
    assert_eq!(servers::shared_running(Kind::Redis)?, Some(first));
    Ok(())
}

#[test]
fn databases_start_again_after_a_kill_and_a_stop() -> Result {
    for kind in [Kind::Postgres, Kind::Maria] {
        let mut server = Instance::start(kind, Settings { durable: true })?;
        // A client that stays: no reason to wait.
        let link = TcpStream::connect(("127.0.0.1", server.port()))?;
        server.kill();
        assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
        server.start_again()?;
        server.stop();
        assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
        server.start_again()?;
        drop(link);
    }
    Ok(())
}

#[test]
fn a_killed_rabbit_comes_back_with_its_queues_and_obeys_its_control() -> Result {
    let mut server = Instance::start(Kind::Rabbit, Settings { durable: true })?;
    let declare =
        "rabbit_amqqueue:declare(rabbit_misc:r(<<\"/\">>, queue, <<\"orders\">>), true, false, [], none, <<\"x\">>).";
    server.rabbitmqctl(&["eval", declare])?;
    server.kill();
    assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
    server.start_again()?;
    let queues = server.rabbitmqctl(&["list_queues", "name"])?;
    assert!(queues.lines().any(|line| line == "orders"), "{queues}");
    assert!(server.rabbitmqctl(&["no_such_command"]).is_err());
    Ok(())
}
