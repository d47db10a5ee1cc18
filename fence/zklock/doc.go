// Package zklock is the lock service that many have: ZooKeeper, with a queue of ephemeral sequential nodes for each
// resource. The token is the zxid that created the holder's node. ZooKeeper keeps what it has acknowledged as long as a
// majority of its servers keeps their data; after a restore from a backup tokens go back, which package guard notices,
// and they are raised above the fence's (fence.Raiser).
//
//		session := new(zklock.Session)
//		client, _, err := zk.Connect(servers, 20*time.Second, zk.WithDialer(session.Dial))
//		locks, err := zklock.New(client, &zklock.Config{Session: session})
//
//	  - F1: the holder's node is the first of its queue, its zxid is that of its creation, and no two nodes have the same.
//	  - F2: by the queue. A lost answer is looked for behind a write of the same session, so that nothing can arrive later.
//	  - F3: a lease's deadline is its last renewal's time of sending, plus the time to live, minus a tenth. A renewal is a
//	    write: servers that are cut off from the others serve reads. The session, with which the node vanishes, has to be
//	    granted for twice the time to live, since a server may die with what it alone knows of the session's last use.
//
// Calls are served in order of arrival, and each watches the one before it. A dead holder's resource is free when its
// session is over. All leases of a connection share its session, and are lost with it.
//
// The queue of a resource is ROOT/lock-RESOURCE, escaped as in a URL's query, a container node: ZooKeeper 3.5.3 or later
// deletes it within a minute or so when it is empty. A lock that is free takes a write and a read, a renewal and a
// release take a write each. A node raised,TOKEN in a queue is what Raise has left there: deleting it lowers the tokens.
//
// A connection that has seen more than a restored server has never gets in again: Check says so. The process then needs
// a new connection and a new Locker, or a restart. ZooKeeper has no epoch: Config.Epoch is at least the database's.
package zklock
