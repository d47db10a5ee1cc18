#!/usr/bin/env bash
# ZooKeeper 3.8.0 (Debian's package, with Java): a write that is acknowledged needn't extend its session. A follower
# tells the leader that a session is in use only when the leader pings it, twice a tick; the write itself doesn't. If the
# follower dies before, the session ends a timeout after its use before that one.
#
# Seen, with sessions of 12 s whose clients fall silent after a write, 6 s after they had begun:
#   the follower is killed right after the answer:  the node vanishes 8 to 9 s after the write
#   the follower lives:                             the node vanishes 14 to 15 s after the write
#
# Why it matters to who locks: a holder that counts its lease from a renewal, the session's timeout long, believes in it
# for seconds in which another has the lock. Half of the timeout is safe, if it is renewed three times in that.
#
# The servers run on 127.0.0.1, ports 28711 to 28733. The client is a few lines of Python, so that nothing but what is
# written here is sent: go-zookeeper pings. Exits 1 if the behaviour has changed.
set -euo pipefail
jar=/usr/share/java/zookeeper.jar
[ -e $jar ] || { echo "no $jar: apt-get install zookeeper" >&2; exit 1; }
dir=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; rm -rf "$dir"' EXIT
for n in 1 2 3; do
	mkdir -p "$dir/$n"
	echo $n >"$dir/$n/myid"
	cat >"$dir/$n.cfg" <<-CFG
		tickTime=2000
		initLimit=10
		syncLimit=5
		dataDir=$dir/$n
		clientPort=2871$n
		clientPortAddress=127.0.0.1
		admin.enableServer=false
		server.1=127.0.0.1:28721:28731
		server.2=127.0.0.1:28722:28732
		server.3=127.0.0.1:28723:28733
	CFG
	java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp $jar:/usr/share/java/slf4j-nop.jar \
		org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/$n.cfg" >"$dir/$n.log" 2>&1 &
	pids+=($!)
	disown
done
python3 - "${pids[@]}" <<'EOF2'
import os, signal, socket, struct, sys, time

pids = dict(zip((28711, 28712, 28713), map(int, sys.argv[1:])))

def mode(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as c:
            c.sendall(b"srvr")
            text = b""
            while part := c.recv(4096):
                text += part
    except OSError:
        return ""
    return text.partition(b"\nMode: ")[2].partition(b"\n")[0].decode()

def text(s):
    return struct.pack(">i", len(s)) + s.encode()

class Session:
    def __init__(self, port):
        self.c = socket.create_connection(("127.0.0.1", port))
        self.c.settimeout(30)
        self.send(struct.pack(">iqiqi", 0, 0, 12000, 0, 16) + bytes(16))
        granted = struct.unpack(">i", self.answer()[4:8])[0]
        assert granted == 12000, granted
        self.xid = 0

    def send(self, body):
        self.c.sendall(struct.pack(">i", len(body)) + body)

    def answer(self):
        size = struct.unpack(">i", self.read(4))[0]
        return self.read(size)

    def read(self, n):
        b = b""
        while len(b) < n:
            part = self.c.recv(n - len(b))
            if not part:
                sys.exit("the server closed the connection")
            b += part
        return b

    def do(self, op, body):
        self.xid += 1
        self.send(struct.pack(">ii", self.xid, op) + body)
        return struct.unpack(">iqi", self.answer()[:16])[2]

    def create(self, path):
        return self.do(1, text(path) + text("") + struct.pack(">ii", 1, 31) + text("world") + text("anyone") + struct.pack(">i", 1))

    def write(self, path):
        return self.do(5, text(path) + text("x") + struct.pack(">i", -1))

    def exists(self, path):
        return self.do(3, text(path) + b"\0") == 0

for _ in range(600):
    modes = {port: mode(port) for port in pids}
    if sorted(modes.values()) == ["follower", "follower", "leader"]:
        break
    time.sleep(0.1)
leader = next(port for port in modes if modes[port] == "leader")
dies, lives = (port for port in modes if modes[port] == "follower")
observer = Session(leader)
sessions = {"/dies": Session(dies), "/lives": Session(lives)}
for path, s in sessions.items():
    assert s.create(path) == 0
time.sleep(6)
written = {}
for path in ("/lives", "/dies"):
    assert sessions[path].write(path) == 0
    written[path] = time.monotonic()
os.kill(pids[dies], signal.SIGKILL)
gone = {}
while len(gone) < 2:
    for path in sessions:
        if path not in gone and not observer.exists(path):
            gone[path] = time.monotonic() - written[path]
    time.sleep(0.05)
print(f"the follower was killed right after the answer: the node vanished {gone['/dies']:.1f} s after the write")
print(f"the follower lives:                             the node vanished {gone['/lives']:.1f} s after the write")
sys.exit(0 if gone["/dies"] < 11 and gone["/lives"] > 11.9 else "the behaviour has changed")
EOF2
