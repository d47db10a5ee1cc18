package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

// service is the keylock.Service.
type service struct {
	client  *zk.Conn
	session *Session
	root    string
	acl     []zk.ACL

	mu     sync.Mutex
	places map[[2]string]*place // by resource and holder
}

// place is what is known of a holder's node. The client sends a request however late, so a holder has one at a time.
type place struct {
	busy  chan struct{} // holds a value during a request
	name  string        // of the node; "" if there is none, or in doubt
	doubt bool          // there may be one: an answer was lost
	token fence.Token   // 0 before it is granted
}

func newService(client *zk.Conn, session *Session, root string, acl []zk.ACL) *service {
	return &service{client: client, session: session, root: root, acl: acl, places: map[[2]string]*place{}}
}

// enter waits for the holder's requests that were given up, and for none that begin when they have been.
func (s *service) enter(ctx context.Context, r keylock.Request, anew bool) (*place, error) {
	s.mu.Lock()
	p := s.places[key(r)]
	if p == nil && anew && ctx.Err() == nil {
		p = &place{busy: make(chan struct{}, 1)}
		s.places[key(r)] = p
	}
	s.mu.Unlock()
	if p == nil {
		return nil, ctx.Err()
	}
	select {
	case p.busy <- struct{}{}:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func key(r keylock.Request) [2]string { return [2]string{r.Resource, r.Holder} }

func (p *place) leave() { <-p.busy }

const raised = "raised,"

func (s *service) dir(resource string) string { return s.root + "/lock-" + url.QueryEscape(resource) }

func prefix(r keylock.Request) string {
	return url.QueryEscape(r.Process) + "," + url.QueryEscape(r.Holder) + ","
}

func holder(name string) string {
	h, _ := url.QueryUnescape(strings.Split(name, ",")[1])
	return h
}

// queue returns the nodes of a resource, in order, and what its tokens are raised by.
func (s *service) queue(resource string) (names []string, by fence.Token, err error) {
	all, _, err := s.client.Children(s.dir(resource))
	if errors.Is(err, zk.ErrNoNode) {
		return nil, 0, nil
	}
	number := map[string]int32{}
	for _, name := range all {
		if token, is := strings.CutPrefix(name, raised); is {
			n, _ := strconv.ParseInt(token, 10, 64)
			by = max(by, fence.Token(n))
		} else if parts := strings.Split(name, ","); len(parts) == 3 {
			n, _ := strconv.ParseInt(parts[2], 10, 32)
			number[name] = int32(n)
			names = append(names, name)
		}
	}
	// A difference has the right sign also when the numbers have gone on below zero.
	slices.SortFunc(names, func(a, b string) int { return int(number[a] - number[b]) })
	return names, by, err
}

func find(names []string, r keylock.Request) int {
	return slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix(r)) })
}

// mkdir makes a directory and those above it.
func (s *service) mkdir(dir string, create func(string, []byte, int32, []zk.ACL) (string, error), flag int32) error {
	_, err := create(dir, nil, flag, s.acl)
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.mkdir(path.Dir(dir), s.client.Create, zk.FlagPersistent); err == nil {
			_, err = create(dir, nil, flag, s.acl)
		}
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// within makes a request below the resource's directory, and the directory if need be.
func (s *service) within(resource string, request func(dir string) error) error {
	dir := s.dir(resource)
	err := request(dir)
	for n := 0; n < 3 && errors.Is(err, zk.ErrNoNode); n++ { // the server deletes empty ones, also one that was just made
		if err = s.mkdir(dir, s.client.CreateContainer, zk.FlagContainer); err == nil {
			err = request(dir)
		}
	}
	return err
}

// data is a node's: the token, 0 before it is granted, and the value.
func data(r keylock.Request, p *place) []byte { return []byte(p.token.String() + "\n" + r.Value) }

// queueUp makes the holder's node, and returns its zxid.
func (s *service) queueUp(r keylock.Request, p *place) (zxid int64, err error) {
	err = s.within(r.Resource, func(dir string) error {
		made, err := s.client.Multi(&zk.CreateRequest{Path: dir + "/" + prefix(r), Data: data(r, p), Acl: s.acl, Flags: zk.FlagEphemeralSequential},
			&zk.SetDataRequest{Path: dir, Version: -1}) // whose answer has the zxid
		if p.doubt = isLost(err); err == nil {
			p.name, zxid = path.Base(made[0].String), made[1].Stat.Mzxid
		}
		return err
	})
	return zxid, err
}

// settle finds out whether a request whose answer was lost has made a node: what precedes a write in the session has
// been done when it is answered, or is not going to be.
func (s *service) settle(r keylock.Request, p *place) error {
	if !p.doubt {
		return nil
	}
	if _, err := s.client.Set(s.dir(r.Resource), nil, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	names, _, err := s.queue(r.Resource)
	if at := find(names, r); at >= 0 {
		p.name = names[at]
	}
	p.doubt = err != nil
	return err
}

// touch writes the holder's node, and returns the zxid that made it; 0 if it isn't there, or another session's.
func (s *service) touch(r keylock.Request, p *place) (zxid int64, err error) {
	stat, err := s.client.Set(s.dir(r.Resource)+"/"+p.name, data(r, p), -1)
	switch {
	case errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrSessionExpired):
		return 0, nil
	case err != nil:
		return 0, err
	case stat.EphemeralOwner != s.client.SessionID():
		return 0, nil
	}
	return stat.Czxid, s.granted(r)
}

// granted fails if the session may be over before a lease's deadline. The server that a client writes to tells the
// leader only twice a tick that the session is in use, and may die before, so that the last renewal counts for nothing.
func (s *service) granted(r keylock.Request) error {
	switch granted := time.Duration(s.session.granted.Load()); {
	case granted == 0:
		return &keylock.Refusal{Remedy: "zklock: connect with zk.WithDialer(session.Dial)", Err: errors.New("Config.Session isn't the client's")}
	case granted < 2*r.TTL:
		return &keylock.Refusal{Remedy: "zklock: connect with a longer session timeout, raise the servers' maxSessionTimeout, or lower Config.TTL",
			Err: fmt.Errorf("the server grants a session of %v, less than twice the TTL of %v", granted, r.TTL)}
	}
	return nil
}

func (s *service) Acquire(ctx context.Context, r keylock.Request) (fence.Token, error) {
	p, err := s.enter(ctx, r, true)
	if err != nil {
		return 0, err
	}
	defer p.leave()
	return s.acquire(ctx, r, p)
}

func (s *service) acquire(ctx context.Context, r keylock.Request, p *place) (fence.Token, error) {
	if err := s.settle(r, p); err != nil {
		return 0, err
	}
	// zxid is the node's after a write of this call, behind which the queue is as new as a lease has to be.
	for zxid := int64(0); ctx.Err() == nil; {
		var err error
		if p.name == "" && r.Mark > 0 {
			if zxid, err = s.queueUp(r, p); err != nil {
				return 0, err
			}
		}
		names, by, err := s.queue(r.Resource)
		if err == nil {
			err = s.granted(r)
		}
		if err != nil {
			return 0, err
		}
		at := slices.Index(names, p.name)
		switch {
		case p.name == "" && len(names) == 0:
			zxid, err = s.queueUp(r, p)
		case p.name == "" || at > 0:
			return 0, &fence.LockedError{Resource: r.Resource, Holder: holder(names[0])}
		case at < 0: // its session is over
			p.name, p.token = "", 0
		case zxid == 0:
			if zxid, err = s.touch(r, p); zxid == 0 && err == nil {
				p.name, p.token = "", 0
			}
		default:
			if p.token == 0 {
				p.token = by + fence.Token(zxid)
			}
			return p.token, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, ctx.Err()
}

func (s *service) Renew(ctx context.Context, r keylock.Request, token fence.Token) (bool, error) {
	p, err := s.enter(ctx, r, false)
	if p == nil {
		return false, err
	}
	defer p.leave()
	if p.name == "" || p.token != token {
		return false, nil
	}
	zxid, err := s.touch(r, p)
	return zxid != 0, err
}

func (s *service) Release(ctx context.Context, r keylock.Request) error {
	p, err := s.enter(ctx, r, false)
	if err != nil {
		return err
	}
	if p == nil { // another process's, which is evicted
		return s.release(r, &place{doubt: true})
	}
	defer p.leave()
	if err := s.release(r, p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.places, key(r))
	return nil
}

func (s *service) release(r keylock.Request, p *place) error {
	if err := s.settle(r, p); err != nil || p.name == "" {
		return err
	}
	if err := s.client.Delete(s.dir(r.Resource)+"/"+p.name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	p.name, p.token = "", 0
	return nil
}

func (s *service) Contended(_ context.Context, of []keylock.Request) ([]bool, error) {
	waits := make([]bool, len(of))
	for i, r := range of { // one may have an error of its own
		names, _, _ := s.queue(r.Resource)
		waits[i] = slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, url.QueryEscape(r.Process)+",") })
	}
	return waits, nil
}

func (s *service) Raise(_ context.Context, resource string, above fence.Token) error {
	_, by, err := s.queue(resource)
	if err != nil || by >= above {
		return err
	}
	return s.within(resource, func(dir string) error {
		_, err := s.client.Create(dir+"/"+raised+above.String(), nil, zk.FlagPersistent, s.acl)
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	})
}

func (s *service) Look(_ context.Context, resource string) (first keylock.Owner, err error) {
	all, err := s.owners(resource, 1)
	if len(all) > 0 {
		first = all[0]
	}
	return first, err
}

func (s *service) List(ctx context.Context) (all []keylock.Owner, err error) {
	dirs, _, err := s.client.Children(s.root)
	for _, dir := range dirs {
		resource, _ := url.QueryUnescape(strings.TrimPrefix(dir, "lock-"))
		if of, failed := s.owners(resource, math.MaxInt); failed != nil {
			return all, failed
		} else if all = append(all, of...); ctx.Err() != nil {
			return all, ctx.Err()
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return all, err
}

// owners returns the first of a queue. What is left of another session isn't known, but what an own one is granted.
func (s *service) owners(resource string, most int) (all []keylock.Owner, err error) {
	names, by, err := s.queue(resource)
	for _, name := range names {
		data, stat, err := s.client.Get(s.dir(resource) + "/" + name)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		} else if err != nil || len(all) == most {
			return all, err
		}
		token, value, _ := strings.Cut(string(data), "\n")
		granted, _ := strconv.ParseInt(token, 10, 64)
		process, _ := url.QueryUnescape(strings.Split(name, ",")[0])
		all = append(all, keylock.Owner{
			Resource: resource, Process: process, Holder: holder(name), Value: value,
			Token: cmp.Or(fence.Token(granted), by+fence.Token(stat.Czxid)), Left: time.Duration(s.session.granted.Load()),
		})
	}
	return all, err
}

func (s *service) Check(ctx context.Context, r keylock.Request) error {
	p := new(place)
	_, err := s.acquire(ctx, r, p)
	err = cmp.Or(err, s.release(r, p))
	_ = s.client.Delete(s.dir(r.Resource), -1)
	return err
}

func (*service) Queues() {}

func (*service) Lasts() {}

// Watch looks at the node before the caller's. A holder's changes with each renewal, so that the client, which forgets no
// watch before that, doesn't collect them. A server that doesn't answer would keep Close.
func (s *service) Watch(ctx context.Context, r keylock.Request, changed func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.watch(ctx, r, changed)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

func (s *service) watch(ctx context.Context, r keylock.Request, changed func()) {
	for ctx.Err() == nil {
		names, _, err := s.queue(r.Resource)
		at := find(names, r)
		if err != nil || at < 0 {
			return
		}
		if at == 0 {
			changed()
			return
		}
		_, _, event, err := s.client.GetW(s.dir(r.Resource) + "/" + names[at-1])
		if errors.Is(err, zk.ErrNoNode) {
			continue
		} else if err != nil {
			return
		}
		select {
		case <-event:
			changed()
		case <-ctx.Done():
		}
	}
}

// isLost reports whether err leaves open what the server has done.
func isLost(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing)
}

// answers are those to a request that ZooKeeper doesn't serve, by how they end. The client has no error for the last.
var answers = map[string]struct {
	reason fence.UnavailableReason
	text   string
}{
	zk.ErrNoAuth.Error():     {fence.Denied, "give the client's user the rights to create, read, write and delete below Config.Root"},
	zk.ErrInvalidACL.Error(): {fence.Denied, "correct Config.ACL, or add the client's user by its AddAuth"},
	"unknown error: -125":    {fence.NoSpace, "raise the quota of Config.Root, or of a node above it"},
}

func (s *service) Explain(err error) (fence.UnavailableReason, error) {
	refusal := func(text string, temporary bool) error {
		return &keylock.Refusal{Remedy: "zklock: " + text, Temporary: temporary, Err: err}
	}
	if short := new(keylock.Refusal); errors.As(err, &short) {
		return fence.Limited, err
	}
	for text, a := range answers {
		if strings.HasSuffix(err.Error(), text) {
			return a.reason, refusal(a.text, false)
		}
	}
	switch {
	case s.session.wentBack.Load():
		return fence.WentBack, refusal("the server has lost changes that the client has seen, as after a restore: restart, or make a new client and Locker", false)
	case s.session.refused.Load():
		return fence.Unreachable, refusal("the server lets no session begin: it is starting, has no majority, or has maxClientCnxns clients", true)
	}
	return fence.Unreachable, err
}
