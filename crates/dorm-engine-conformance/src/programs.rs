//! The programs that guests run in the checks.

/// Commands of the image. All of them print lines on standard output and run until they are killed.
#[derive(Clone, Debug)]
pub struct Programs {
    /// With a token as its last argument: answers each line of its input with the token, a space,
    /// and a number that rises by one from 1, both kept in memory only.
    pub counting: Vec<String>,
    /// Prints a number that rises by one from 1, several times a second at least.
    pub ticking: Vec<String>,
    /// Answers each line of its input with the next line of a file that it holds open and has
    /// deleted: `line 1`, `line 2`, ….
    pub holding_deleted: Vec<String>,
    /// Allocates ever more memory, and holds it in this same process.
    pub allocating: Vec<String>,
    /// With a port as its last argument: answers HTTP requests there with status 200. It retries an
    /// interrupted `accept`: gVisor interrupts it if the guest is paused while it waits there.
    pub serving: Vec<String>,
}

const COUNTING: &str = r#"n=0; while read -r line; do n=$((n+1)); echo "$1 $n"; done"#;
const TICKING: &str = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done";
const HOLDING: &str = r#"i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo "line $i"; done > /root/held
exec 3< /root/held; rm /root/held; while read -r request; do read -r line <&3; echo "$line"; done"#;
const SERVING: &str = r#"my $s = IO::Socket::INET->new(LocalPort => $ARGV[0], Listen => 8, ReuseAddr => 1) or die $!;
while (1) { my $c = $s->accept or next; while (<$c>) { last if /^\r?\n$/ } print $c "HTTP/1.0 200 OK\r\n\r\nserved\n"; close $c }"#;

impl Programs {
    /// Returns the programs for an image with a POSIX shell, GNU `tail` and Perl, such as a minimal
    /// Debian.
    pub fn of_debian() -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            counting: words(&["sh", "-c", COUNTING, "sh"]),
            ticking: words(&["sh", "-c", TICKING]),
            holding_deleted: words(&["sh", "-c", HOLDING]),
            allocating: words(&["tail", "/dev/zero"]),
            serving: words(&["perl", "-MIO::Socket::INET", "-e", SERVING]),
        }
    }
}
