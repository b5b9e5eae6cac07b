use super::*;

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        total: 6,
        visitors: 2,
        unknown: 3,
        unknown_for: Duration::from_secs(10),
        unknown_at_once: 6,
        new_for: Duration::ZERO,
    }
}

#[tokio::test(start_paused = true)]
async fn new_ones_are_closed_for_newer_ones_only_if_there_are_very_many() {
    let limits = ConnectionLimits { unknown_at_once: 5, new_for: Duration::from_secs(1), ..limits() };
    let connections = Connections::new(limits);
    let mut all: Vec<_> = (0..5).map(|_| connections.enter().unwrap()).collect();
    let closed = |all: &[(Arc<Ticket>, Closing)]| all.iter().filter(|(_, one)| one.close.is_cancelled()).count();
    assert_eq!(closed(&all), 0);
    all.push(connections.enter().unwrap());
    assert_eq!(closed(&all), 1);
    // One that shows its key makes room for a newer one.
    assert!(all[1].0.stand(Standing::Known));
    all.push(connections.enter().unwrap());
    assert_eq!(closed(&all), 1);
    drop((all.pop(), all.pop()));
    tokio::time::advance(Duration::from_secs(1)).await;
    all.push(connections.enter().unwrap());
    assert_eq!(closed(&all), 2);
}

#[test]
fn the_oldest_idle_one_without_a_key_makes_room() {
    let connections = Connections::new(limits());
    let (known, known_closing) = connections.enter().unwrap();
    assert!(known.stand(Standing::Known));
    let (busy, busy_closing) = connections.enter().unwrap();
    let request = busy.begin();
    let (_idle, idle_closing) = connections.enter().unwrap();
    let (_newer, newer_closing) = connections.enter().unwrap();
    let _one = connections.enter().unwrap();
    assert!(idle_closing.close.is_cancelled());
    for stays in [&known_closing, &busy_closing, &newer_closing] {
        assert!(!stays.close.is_cancelled());
    }
    drop(request);
    let _another = connections.enter().unwrap();
    assert!(busy_closing.close.is_cancelled());
}

#[test]
fn a_connection_with_a_key_is_never_closed_for_another() {
    let connections = Connections::new(limits());
    let all: Vec<_> = (0..6).map(|_| connections.enter().unwrap()).collect();
    all.iter().for_each(|(ticket, _)| assert!(ticket.stand(Standing::Known)));
    // The first three had to close, but showed a key that had arrived before.
    assert_eq!(all.iter().filter(|(_, closing)| closing.close.is_cancelled()).count(), 3);
    assert!(connections.enter().is_none());
    drop(all);
    assert!(connections.enter().is_some());
    assert_eq!(connections.lock().1.len(), 0);
}

#[test]
fn visitors_of_sandboxes_leave_room_for_keys() {
    let connections = Connections::new(limits());
    let all: Vec<_> = (0..3).map(|_| connections.enter().unwrap()).collect();
    assert_eq!(all.iter().filter(|(ticket, _)| ticket.stand(Standing::Visitor)).count(), 2);
    assert!(all.iter().all(|(ticket, _)| ticket.stand(Standing::Known)));
}

#[tokio::test(start_paused = true)]
async fn one_that_stays_idle_without_a_key_is_closed_after_a_time() {
    let connections = Connections::new(limits());
    let (ticket, closing) = connections.enter().unwrap();
    let begun = tokio::time::Instant::now();
    let request = ticket.begin();
    let asked = tokio::spawn(closing.overdue());
    tokio::time::sleep(Duration::from_secs(15)).await;
    drop(request);
    asked.await.unwrap();
    // After twice the time of idleness, and the time to close.
    assert_eq!(begun.elapsed().as_secs(), 21);
    let (known, closing) = connections.enter().unwrap();
    known.stand(Standing::Known);
    tokio::time::timeout(Duration::from_secs(3600), closing.overdue()).await.unwrap_err();
}

async fn connected(connections: &Arc<Connections>) -> (TcpStream, Counted, Arc<Ticket>, Closing) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (ticket, closing) = connections.enter().unwrap();
    (client, Counted::new(listener.accept().await.unwrap().0, ticket.clone()), ticket, closing)
}

fn read_now(stream: &mut Counted) -> Option<Vec<u8>> {
    let (mut bytes, mut context) = ([0; 8], Context::from_waker(std::task::Waker::noop()));
    let mut to = ReadBuf::new(&mut bytes);
    let read = Pin::new(stream).poll_read(&mut context, &mut to).map(Result::unwrap);
    read.is_ready().then(|| to.filled().to_vec())
}

#[tokio::test]
async fn what_has_arrived_is_read_before_a_connection_closes() {
    use tokio::io::AsyncReadExt as _;
    let connections = Connections::new(ConnectionLimits { unknown: 1, ..limits() });
    let (client, mut stream, ticket, _closing) = connected(&connections).await;
    assert_eq!(read_now(&mut stream), None);
    let _newer = connections.enter().unwrap();
    assert!(ticket.close.is_cancelled());
    // The runtime has not seen these bytes yet.
    client.try_write(b"GET").unwrap();
    assert_eq!(read_now(&mut stream), None);
    let mut bytes = [0; 8];
    assert_eq!(stream.read(&mut bytes).await.unwrap(), 3);
    let request = ticket.begin();
    assert_eq!(read_now(&mut stream), None);
    drop(request);
    assert_eq!(read_now(&mut stream), Some(Vec::new()));
}

#[tokio::test]
async fn a_connection_that_waits_for_bytes_sees_that_it_must_close() {
    use tokio::io::AsyncReadExt as _;
    let connections = Connections::new(ConnectionLimits { unknown: 1, ..limits() });
    let (_client, mut stream, ticket, _closing) = connected(&connections).await;
    let mut bytes = [0; 8];
    let (read, _newer) = tokio::join!(stream.read(&mut bytes), async { connections.enter().unwrap() });
    assert_eq!(read.unwrap(), 0);
    // If a key arrives after all, it stays.
    assert!(ticket.stand(Standing::Known));
    assert_eq!(read_now(&mut stream), None);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_never_read_do_not_keep_a_connection() {
    let connections = Connections::new(ConnectionLimits { unknown: 1, ..limits() });
    let (client, mut stream, ticket, closing) = connected(&connections).await;
    assert_eq!(read_now(&mut stream), None);
    let _newer = connections.enter().unwrap();
    assert!(ticket.close.is_cancelled());
    client.try_write(b"GET").unwrap();
    assert_eq!(read_now(&mut stream), None);
    tokio::time::timeout(Duration::from_secs(60), closing.overdue()).await.unwrap();
}

#[test]
fn connections_that_are_slow_to_close_are_counted() {
    let connections = Connections::new(limits());
    let all: Vec<_> = std::iter::from_fn(|| connections.enter()).take(100).collect();
    // Six that count, and three that must close.
    assert_eq!(all.len(), 9);
    assert_eq!(all.iter().filter(|(ticket, _)| ticket.close.is_cancelled()).count(), 3);
}
