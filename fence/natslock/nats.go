package natslock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

// service is the keylock.Service. Each write has the revision that was read as its condition: reads decide nothing.
type service struct {
	js       jetstream.JetStream
	config   jetstream.StreamConfig
	publish  string // before subjects of the bucket
	keys     string // before keys
	messages string // before subjects of messages that nobody keeps
	opened   atomic.Pointer[jetstream.Stream]

	mu    sync.Mutex
	heard *nats.Subscription   // once somebody asked
	waits map[string]time.Time // until when another process waits for a resource
}

func newService(js jetstream.JetStream, bucket string, replicas int) *service {
	s := &service{js: js, keys: "$KV." + bucket + ".", messages: "fencekit." + bucket + ".", waits: map[string]time.Time{}}
	switch o := js.Options(); { // as the client's KeyValue does
	case o.APIPrefix != "":
		s.publish = strings.TrimSuffix(o.APIPrefix, ".") + "."
	case o.Domain != "":
		s.publish = "$JS." + o.Domain + ".API."
	}
	s.config = jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{s.keys + ">"}, Replicas: replicas, MaxMsgsPerSubject: 1,
		Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowMsgTTL: true,
	}
	return s
}

// BucketError says what to set in the stream of an existing bucket. Without a bucket, the Locker makes one.
type BucketError struct {
	Stream string
	Set    []string
}

func (e *BucketError) Error() string {
	return fmt.Sprintf("natslock: of the stream %s, set %s; or name another natslock.Config.Bucket", e.Stream, strings.Join(e.Set, ", and "))
}

// open returns the bucket, which it may make if there is none.
func (s *service) open(ctx context.Context, create bool) (jetstream.Stream, error) {
	if opened := s.opened.Load(); opened != nil {
		return *opened, nil
	}
	stream, err := s.js.Stream(ctx, s.config.Name)
	if create && errors.Is(err, jetstream.ErrStreamNotFound) {
		if stream, err = s.js.CreateStream(ctx, s.config); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = s.js.Stream(ctx, s.config.Name) // another process was faster, with other replicas
		}
	}
	if err != nil {
		return nil, err
	}
	c, wrong := stream.CachedInfo().Config, &BucketError{Stream: s.config.Name}
	for _, setting := range []struct {
		is  bool
		set string
	}{
		{c.AllowMsgTTL, "AllowMsgTTL to true, with NATS 2.11 or later"},
		{c.SubjectDeleteMarkerTTL == 0, "SubjectDeleteMarkerTTL (a bucket's LimitMarkerTTL) to 0, since its marker may overwrite a renewal"},
		{!c.AllowDirect, "AllowDirect to false, since a server would answer that lags behind"},
		{c.MaxAge == 0, "MaxAge (a bucket's TTL) to 0"},
		{c.MaxMsgsPerSubject == 1, "MaxMsgsPerSubject (a bucket's history) to 1"},
		{c.Discard == jetstream.DiscardNew, "Discard to new"},
		{c.Retention == jetstream.LimitsPolicy, "Retention to limits"},
		{c.Mirror == nil && len(c.Sources) == 0, "no Mirror or Sources"},
	} {
		if !setting.is {
			wrong.Set = append(wrong.Set, setting.set)
		}
	}
	if wrong.Set != nil {
		return nil, wrong
	}
	s.opened.Store(&stream)
	return stream, nil
}

// escaped leaves letters, digits, - _ and / of a name, so that people find it.
var escaped = func(escape *strings.Replacer) func(name string) string {
	return func(name string) string { return escape.Replace(url.QueryEscape(name)) }
}(strings.NewReplacer("%2F", "/", "%", "=", ".", "=2E", "~", "=7E", "+", "=20"))

func lockKey(resource string) string { return "lock." + escaped(resource) }

// get asks the bucket's leader. What isn't there, or was deleted, has no data.
func (s *service) get(ctx context.Context, key string) (*jetstream.RawStreamMsg, error) {
	for ctx.Err() == nil {
		bucket, err := s.open(ctx, false)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return &jetstream.RawStreamMsg{}, nil
		} else if err != nil {
			return nil, err
		}
		attempt, cancel := context.WithTimeout(ctx, time.Second) // a leader that is stopped doesn't answer
		m, err := bucket.GetLastMsgForSubject(attempt, s.keys+key)
		cancel()
		switch {
		case err == nil:
			return m, nil
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return &jetstream.RawStreamMsg{}, nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			s.opened.Store(nil) // somebody has deleted it
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
	return nil, ctx.Err()
}

// put writes key if its revision still is that, and returns its new one. KeyValue.Update takes the time to live away.
func (s *service) put(ctx context.Context, key, value string, revision uint64, ttl time.Duration) (uint64, error) {
	if !s.js.Conn().IsConnected() {
		return 0, nats.ErrDisconnected // else the client keeps it, and sends it long after the call
	}
	if _, err := s.open(ctx, true); err != nil {
		return 0, err
	}
	m := nats.NewMsg(s.publish + s.keys + key)
	if m.Data = []byte(value); value == "" {
		m.Header.Set("KV-Operation", "DEL")
	}
	ttl = (ttl + time.Second - 1).Truncate(time.Second) // NATS cuts a part of a second off
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(ttl))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func conflict(err error) bool {
	return code(err) == jetstream.JSErrCodeStreamWrongLastSequence || code(err) == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// lock is an Owner, or nobody, and the revision of that.
type lock struct {
	keylock.Owner
	revision uint64
}

func (l lock) by(r keylock.Request) bool { return l.Process == r.Process && l.Holder == r.Holder }

// read returns a lock. It is PROCESS \n HOLDER \n TOKEN \n VALUE, and before its first renewal has +OFFSET: then the
// token is that plus its revision, which is known when it is written. Neither of the first two has a control character.
func (s *service) read(ctx context.Context, resource string) (lock, error) {
	m, err := s.get(ctx, lockKey(resource))
	if err != nil {
		return lock{}, err
	} else if len(m.Data) == 0 {
		return lock{revision: m.Sequence}, nil
	}
	parts := append(strings.SplitN(string(m.Data), "\n", 4), "", "", "")
	number, isOffset := strings.CutPrefix(parts[2], "+")
	token, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return lock{}, fmt.Errorf("natslock: the key %s has another program's value: %q", lockKey(resource), m.Data)
	}
	if isOffset {
		token += int64(m.Sequence)
	}
	ttl, _ := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
	return lock{keylock.Owner{
		Resource: resource, Process: parts[0], Holder: parts[1], Value: parts[3], Token: fence.Token(token), Left: time.Until(m.Time.Add(ttl)),
	}, m.Sequence}, nil
}

func (s *service) write(ctx context.Context, r keylock.Request, token string, revision uint64) (uint64, error) {
	return s.put(ctx, lockKey(r.Resource), strings.Join([]string{r.Process, r.Holder, token, r.Value}, "\n"), revision, r.TTL)
}

// Acquire tries twice, to learn who was faster.
func (s *service) Acquire(ctx context.Context, r keylock.Request) (fence.Token, error) {
	for range 2 {
		lock, err := s.read(ctx, r.Resource)
		switch {
		case err != nil:
			return 0, err
		case lock.by(r): // an answer was lost; the time to live is to begin with this request
			if _, err = s.write(ctx, r, lock.Token.String(), lock.revision); !conflict(err) {
				return lock.Token, err
			}
			continue
		case lock.Holder != "":
			if r.Mark > 0 && lock.Process != r.Process {
				s.tell("waits."+escaped(lock.Process), strconv.FormatInt(r.Mark.Milliseconds(), 10)+"\n"+r.Resource)
			}
			return 0, &fence.LockedError{Resource: r.Resource, Holder: lock.Holder}
		}
		offset, _, err := s.offset(ctx, r.Resource)
		if err != nil {
			return 0, err
		}
		revision, err := s.write(ctx, r, "+"+offset.String(), lock.revision)
		if !conflict(err) {
			return offset + fence.Token(revision), err
		}
	}
	return 0, &fence.LockedError{Resource: r.Resource}
}

func (s *service) Renew(ctx context.Context, r keylock.Request, token fence.Token) (bool, error) {
	lock, err := s.read(ctx, r.Resource)
	if err != nil || !lock.by(r) || lock.Token != token {
		return false, err
	}
	_, err = s.write(ctx, r, token.String(), lock.revision)
	return err == nil, err
}

// Release leaves a marker for a second, the least that NATS has.
func (s *service) Release(ctx context.Context, r keylock.Request) error {
	lock, err := s.read(ctx, r.Resource)
	if err != nil || !lock.by(r) {
		return err
	}
	if _, err = s.put(ctx, lockKey(r.Resource), "", lock.revision, time.Second); err == nil {
		s.tell("freed."+escaped(r.Resource), "")
	}
	return err
}

// offset is what is added to the tokens of a resource. It stays for as long as the bucket.
func (s *service) offset(ctx context.Context, resource string) (offset fence.Token, revision uint64, err error) {
	m, err := s.get(ctx, "raise."+escaped(resource))
	if err != nil {
		return 0, 0, err
	}
	n, err := strconv.ParseInt(cmp.Or(string(m.Data), "0"), 10, 64)
	return fence.Token(n), m.Sequence, err
}

func (s *service) Raise(ctx context.Context, resource string, above fence.Token) error {
	for {
		offset, revision, err := s.offset(ctx, resource)
		if err != nil || offset >= above {
			return err
		}
		if _, err = s.put(ctx, "raise."+escaped(resource), above.String(), revision, 0); !conflict(err) {
			return err
		}
	}
}

func (s *service) Look(ctx context.Context, resource string) (keylock.Owner, error) {
	lock, err := s.read(ctx, resource)
	return lock.Owner, err
}

// List asks for the names, and then for each lock.
func (s *service) List(ctx context.Context) (owners []keylock.Owner, err error) {
	bucket, err := s.open(ctx, false)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	info, err := bucket.Info(ctx, jetstream.WithSubjectFilter(s.keys+"lock.>"))
	if err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		name, err := url.PathUnescape(strings.ReplaceAll(strings.TrimPrefix(subject, s.keys+"lock."), "=", "%"))
		if err != nil {
			continue // another program's
		}
		lock, err := s.read(ctx, name)
		if err != nil {
			return nil, err
		} else if lock.Holder != "" {
			owners = append(owners, lock.Owner)
		}
	}
	return owners, nil
}

func (s *service) Check(ctx context.Context, r keylock.Request) error {
	if _, err := s.Acquire(ctx, r); err != nil {
		return err
	}
	return s.Release(ctx, r)
}

// tell sends a message. One that is lost is made up for by polling.
func (s *service) tell(subject, data string) {
	if s.js.Conn().IsConnected() {
		_ = s.js.Conn().Publish(s.messages+subject, []byte(data))
	}
}

// Contended listens since it was first asked: of is of one process.
func (s *service) Contended(_ context.Context, of []keylock.Request) (are []bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard == nil {
		s.heard, err = s.js.Conn().Subscribe(s.messages+"waits."+escaped(of[0].Process), func(m *nats.Msg) {
			mark, resource, _ := strings.Cut(string(m.Data), "\n")
			ms, _ := strconv.Atoi(mark)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.waits[resource] = time.Now().Add(time.Duration(ms) * time.Millisecond)
		})
		if err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(s.waits, func(_ string, until time.Time) bool { return time.Now().After(until) })
	for _, r := range of {
		_, is := s.waits[r.Resource]
		are = append(are, is)
	}
	return are, nil
}

func (s *service) deafen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard == nil {
		s.heard = &nats.Subscription{} // for a call that comes late
	}
	_ = s.heard.Unsubscribe()
}

// Watch hears of releases, each of which wakes one of those that wait. That a lock has expired is found by polling.
func (s *service) Watch(ctx context.Context, r keylock.Request, changed func()) {
	freed, err := s.js.Conn().QueueSubscribe(s.messages+"freed."+escaped(r.Resource), "waiting", func(*nats.Msg) { changed() })
	if err == nil {
		<-ctx.Done()
		_ = freed.Unsubscribe()
	}
}

const enable = "enable JetStream, on the server and for the account"

// refusals are answers, by their code, to a request that isn't served.
var refusals = map[jetstream.ErrorCode]struct {
	reason    fence.UnavailableReason
	temporary bool
	text      string
}{
	10002: {fence.NoSpace, false, "raise the account's limits of storage"},
	10008: {fence.Unreachable, true, "the cluster, or the bucket's part of it, has no leader"},
	10023: {fence.NoSpace, true, "raise the server's max_file_store, or free its disk"},
	10027: {fence.Limited, false, "raise the account's limit of streams"},
	10039: {fence.Denied, false, enable},
	10047: {fence.NoSpace, false, "raise the server's max_file_store, or free its disk"},
	10071: {fence.Unreachable, true, "the key has just changed"},
	10074: {fence.Limited, false, "the server is in no cluster: set natslock.Config.Replicas to 1"},
	10076: {fence.Denied, false, enable},
	10077: {fence.NoSpace, false, "raise the bucket's MaxBytes and MaxMsgs, or free the server's disk"},
	10163: {fence.Unreachable, true, "the bucket's leader is new"},
	10164: {fence.Unreachable, true, "the key is being changed"},
}

// code is 0 if err is no answer.
func code(err error) jetstream.ErrorCode {
	var answered *jetstream.APIError
	if errors.As(err, &answered) {
		return answered.ErrorCode
	}
	return 0
}

func (s *service) Explain(err error) (fence.UnavailableReason, error) {
	refused, is := refusals[code(err)]
	last := fmt.Sprint(s.js.Conn().LastError())
	switch {
	case is:
		return refused.reason, &keylock.Refusal{Remedy: "natslock: " + refused.text, Temporary: refused.temporary, Err: err}
	case code(err) != 0 || errors.As(err, new(*BucketError)):
		return "", err
	case errors.Is(err, context.DeadlineExceeded) && strings.Contains(last, nats.PERMISSIONS_ERR) && // it isn't told of the request
		(strings.Contains(last, s.keys) || strings.Contains(last, s.config.Name)):
		return fence.Denied, &keylock.Refusal{Remedy: "natslock: give the client's user the rights that natslock's documentation lists: " + last, Err: err}
	case errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse):
		return fence.Unreachable, &keylock.Refusal{Remedy: "natslock: " + enable, Temporary: true, Err: err}
	}
	return fence.Unreachable, err
}
