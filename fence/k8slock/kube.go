package k8slock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

// Annotations of a Lease. ofProcess is a label as well, of its hash, by which a process finds its own.
const (
	ofResource = "fencekit/resource"
	ofToken    = "fencekit/token"  // from the first write after the acquisition on
	ofOffset   = "fencekit/offset" // what Raise adds to versions
	ofWaits    = "fencekit/waits"  // another process waits, or did
	ofProcess  = "fencekit/process"
	ofValue    = "fencekit/value"
)

// service is the keylock.Service. Every write is conditional on the Lease's version, and a PUT on its UID as well: it makes
// a deleted Lease anew, whatever version it names.
type service struct {
	leases typed.LeaseInterface
	prefix string
	held   sync.Map     // of holder: the *coordination.Lease as this process wrote it last
	seen   sync.Map     // of name: the sight of another's
	looks  atomic.Int64 // at Leases of others
	proven atomic.Bool  // that the client has all rights
}

// sight is when this process saw a renewal first, and the Lease last.
type sight struct {
	renewal, version string
	first, last      time.Time
}

// once keeps the client from repeating what the server refuses: the reason would be lost when the context ends.
type once struct{ rest.Interface }

func (o once) Get() *rest.Request    { return o.Interface.Get().MaxRetries(0) }
func (o once) Put() *rest.Request    { return o.Interface.Put().MaxRetries(0) }
func (o once) Post() *rest.Request   { return o.Interface.Post().MaxRetries(0) }
func (o once) Delete() *rest.Request { return o.Interface.Delete().MaxRetries(0) }

var readable = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(/[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// name is the resource's alone: a prefix has no dot, and a name with a hash none at all.
func (s *service) name(resource string) string {
	if name := s.prefix + "." + strings.ReplaceAll(resource, "/", "."); readable.MatchString(resource) && len(name) <= 253 {
		return name
	}
	return s.prefix + "-" + hash(resource)
}

func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// label is of at most 63 characters.
func label(process string) string { return hash(process)[:32] }

// ForeignLeaseError: the Lease with a resource's name was made by others, or for another resource. It is left as it is.
type ForeignLeaseError struct {
	Namespace, Name, Resource string // Resource is "" if others made it
}

func (e *ForeignLeaseError) Error() string {
	return fmt.Sprintf("the Lease %s in %s is not this resource's: its annotation %s is %q", e.Name, e.Namespace, ofResource, e.Resource)
}

// get reads from a quorum, as a request without a version does.
func (s *service) get(ctx context.Context, resource string) (*coordination.Lease, error) {
	l, err := s.leases.Get(ctx, s.name(resource), metav1.GetOptions{})
	if of := l.GetAnnotations()[ofResource]; err == nil && of != resource {
		err = &ForeignLeaseError{l.Namespace, l.Name, of}
	}
	return l, err
}

func holder(l *coordination.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, "") }

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// token is 0 if the version is no number.
func token(l *coordination.Lease) fence.Token {
	kept, version := number(l.Annotations[ofToken]), number(l.ResourceVersion)
	if kept > 0 || version == 0 {
		return fence.Token(kept)
	}
	return fence.Token(version + number(l.Annotations[ofOffset]))
}

// annotate keeps the token, since a write changes the version.
func annotate(l *coordination.Lease, key, value string) {
	l.Annotations[ofToken] = token(l).String()
	l.Annotations[key] = value
}

// touch makes the time another even if the clock doesn't: others compare it, and an update of nothing is no write.
func touch(l *coordination.Lease) *coordination.Lease {
	now := time.Now().Truncate(time.Microsecond)
	if last := l.Spec.RenewTime; last != nil && !now.After(last.Time) {
		now = last.Add(time.Microsecond)
	}
	l.Spec.RenewTime = &metav1.MicroTime{Time: now}
	return l
}

func take(l *coordination.Lease, r keylock.Request) *coordination.Lease {
	l.Labels = map[string]string{ofProcess: label(r.Process)}
	l.Annotations = map[string]string{ofResource: r.Resource, ofProcess: r.Process, ofValue: r.Value, ofOffset: l.Annotations[ofOffset]}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &r.Holder, ptr.To(int32((r.TTL+time.Second-1)/time.Second))
	l.Spec.AcquireTime = touch(l).Spec.RenewTime
	return l
}

// left is what is left of the holder's time, since this process has seen its last renewal. No other clock counts.
func (s *service) left(l *coordination.Lease) time.Duration {
	if holder(l) == "" {
		return 0
	}
	now, at := time.Now(), s.sight(l.Name)
	if renewal := fmt.Sprint(holder(l), l.Spec.RenewTime); at.renewal != renewal {
		at = sight{renewal: renewal, first: now}
	}
	at.version, at.last = l.ResourceVersion, now
	s.seen.Store(l.Name, at)
	if s.looks.Add(1)%1000 == 0 {
		s.seen.Range(func(name, of any) bool {
			if now.Sub(of.(sight).last) > time.Hour { // the longest time to live
				s.seen.CompareAndDelete(name, of)
			}
			return true
		})
	}
	return max(0, time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 3600))*time.Second-now.Sub(at.first))
}

func (s *service) sight(name string) sight {
	at, _ := s.seen.Load(name)
	is, _ := at.(sight)
	return is
}

// attempts bounds the tries of a write that others come before.
const attempts = 3

func (s *service) Acquire(ctx context.Context, r keylock.Request) (fence.Token, error) {
	name := s.name(r.Resource)
	for range attempts {
		if s.sight(name).version == "" { // probably it isn't there
			l, err := s.leases.Create(ctx, take(&coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, r), metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				return s.granted(ctx, r, l, err)
			}
		}
		l, err := s.get(ctx, r.Resource)
		switch {
		case apierrors.IsNotFound(err):
			s.seen.Delete(name)
			continue
		case err != nil:
			return 0, err
		case holder(l) == r.Holder: // an answer was lost; the time to live begins anew
			annotate(touch(l), ofResource, r.Resource)
		case s.left(l) == 0:
			take(l, r)
		default:
			if r.Mark > 0 && l.Annotations[ofWaits] == "" && l.Annotations[ofProcess] != r.Process {
				annotate(l, ofWaits, "true")
				_, _ = s.leases.Update(ctx, l, metav1.UpdateOptions{})
			}
			return 0, &fence.LockedError{Resource: r.Resource, Holder: holder(l)}
		}
		if l, err = s.leases.Update(ctx, l, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return s.granted(ctx, r, l, err)
		}
	}
	return 0, &fence.LockedError{Resource: r.Resource}
}

func (s *service) granted(ctx context.Context, r keylock.Request, l *coordination.Lease, err error) (fence.Token, error) {
	if err != nil {
		return 0, err
	}
	s.seen.Delete(l.Name)
	if s.held.Store(r.Holder, l); ctx.Err() != nil {
		s.held.Delete(r.Holder) // Release may have been here
	}
	return token(l), nil
}

// own has the Lease written if it is the holder's, with that token or any for 0, again if others came before, and reports
// whether it is. Only a Lease as this process wrote it tells its token: others may write before its first renewal.
func (s *service) own(ctx context.Context, r keylock.Request, t fence.Token, write func(*coordination.Lease) error) (bool, error) {
	held, _ := s.held.Load(r.Holder)
	l, _ := held.(*coordination.Lease)
	for n := 1; ; n++ {
		var err error
		if l == nil {
			l, err = s.get(ctx, r.Resource)
		}
		if n == 1 && held != nil && t > 0 && token(l) != t {
			return false, nil
		}
		if apierrors.IsNotFound(err) || errors.As(err, new(*ForeignLeaseError)) || err == nil && holder(l) != r.Holder {
			return false, nil
		}
		if err == nil {
			err = write(l.DeepCopy())
		}
		if n == attempts || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err == nil, err
		}
		l = nil
	}
}

func (s *service) Renew(ctx context.Context, r keylock.Request, t fence.Token) (bool, error) {
	return s.own(ctx, r, t, func(l *coordination.Lease) error {
		l.Annotations[ofToken], l.Annotations[ofValue] = t.String(), r.Value
		l, err := s.leases.Update(ctx, touch(l), metav1.UpdateOptions{})
		if err == nil {
			if _, still := s.held.Swap(r.Holder, l); !still {
				s.held.Delete(r.Holder)
			}
		}
		return err
	})
}

// Release keeps a Lease that says what to add.
func (s *service) Release(ctx context.Context, r keylock.Request) error {
	defer s.held.Delete(r.Holder)
	_, err := s.own(ctx, r, 0, func(l *coordination.Lease) error {
		if l.Annotations[ofOffset] == "" {
			return s.leases.Delete(ctx, l.Name, *metav1.NewRVDeletionPrecondition(l.ResourceVersion))
		}
		l.Spec.HolderIdentity = nil
		_, err := s.leases.Update(ctx, l, metav1.UpdateOptions{})
		return err
	})
	return err
}

// Contended asks once for all Leases of the process. A mark ends with its grant.
func (s *service) Contended(ctx context.Context, of []keylock.Request) ([]bool, error) {
	all, err := s.leases.List(ctx, metav1.ListOptions{LabelSelector: ofProcess + "=" + label(of[0].Process)})
	if err != nil {
		return nil, err
	}
	waits, are := map[string]string{}, make([]bool, len(of))
	for _, l := range all.Items {
		waits[holder(&l)] = l.Annotations[ofWaits]
	}
	for i, r := range of {
		are[i] = waits[r.Holder] != ""
	}
	return are, nil
}

func (s *service) owner(l *coordination.Lease) (none keylock.Owner) {
	left := s.left(l)
	if left == 0 {
		return none
	}
	of := l.Annotations
	return keylock.Owner{Resource: of[ofResource], Process: of[ofProcess], Holder: holder(l), Value: of[ofValue], Token: token(l), Left: left}
}

func (s *service) Look(ctx context.Context, resource string) (none keylock.Owner, err error) {
	l, err := s.get(ctx, resource)
	if apierrors.IsNotFound(err) {
		return none, nil
	} else if err != nil {
		return none, err
	}
	return s.owner(l), nil
}

func (s *service) List(ctx context.Context) (owners []keylock.Owner, err error) {
	all, err := s.leases.List(ctx, metav1.ListOptions{LabelSelector: ofProcess})
	if err != nil {
		return nil, err
	}
	for _, l := range all.Items {
		if o := s.owner(&l); o.Holder != "" && l.Name == s.name(o.Resource) {
			owners = append(owners, o)
		}
	}
	return owners, nil
}

func (s *service) Raise(ctx context.Context, resource string, above fence.Token) error {
	for n := 1; ; n++ {
		l, err := s.get(ctx, resource)
		if apierrors.IsNotFound(err) {
			l = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name(resource), Annotations: map[string]string{ofResource: resource}}}
			l, err = s.leases.Create(ctx, l, metav1.CreateOptions{})
		}
		if err == nil {
			if add := int64(above) - number(l.ResourceVersion); add > number(l.Annotations[ofOffset]) {
				annotate(l, ofOffset, strconv.FormatInt(add, 10))
				_, err = s.leases.Update(ctx, l, metav1.UpdateOptions{})
			}
		}
		if n == attempts || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

// Watch begins behind what was seen last, so that it misses nothing. It ends when that is too old, and now and then.
func (s *service) Watch(ctx context.Context, r keylock.Request, changed func()) {
	name := s.name(r.Resource)
	w, err := s.leases.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: s.sight(name).version})
	if err != nil {
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		l, is := e.Object.(*coordination.Lease)
		if e.Type == watch.Deleted {
			s.seen.Delete(name)
		}
		if e.Type == watch.Deleted || is && holder(l) == "" {
			changed()
		}
	}
}

// Check uses each right once. It begins with that to delete, without which its Lease would stay.
func (s *service) Check(ctx context.Context, r keylock.Request) error {
	proven := s.proven.Load()
	if !proven {
		if err := s.leases.Delete(ctx, s.name(r.Resource), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
	}
	t, err := s.Acquire(ctx, r)
	if err == nil && !proven {
		_, get := s.get(ctx, r.Resource)
		_, list := s.Contended(ctx, []keylock.Request{r})
		_, update := s.Renew(ctx, r, t)
		w, watch := s.leases.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + s.name(r.Resource)})
		if watch == nil {
			w.Stop()
		}
		err = cmp.Or(get, list, update, watch)
	}
	err = cmp.Or(err, s.Release(ctx, r))
	s.proven.CompareAndSwap(false, err == nil)
	return err
}

func (s *service) Explain(err error) (fence.UnavailableReason, error) {
	has := func(text string) bool { return strings.Contains(err.Error(), text) }
	for _, refusal := range []struct {
		is        bool
		reason    fence.UnavailableReason
		temporary bool
		remedy    string
	}{
		{errors.As(err, new(*ForeignLeaseError)), "", false, "set another Config.Prefix"},
		{apierrors.IsNotFound(err) || has("is being terminated"), "", false, "make the namespace"},
		{apierrors.IsForbidden(err) && has("quota"), fence.Limited, false, "raise the namespace's quota of Leases"},
		{apierrors.IsForbidden(err), fence.Denied, false, "give the client a Role in the namespace with the verbs get, list, watch, create, update and delete on leases of coordination.k8s.io"},
		{apierrors.IsUnauthorized(err), fence.Denied, false, "give the client credentials that are valid"},
		{has("database space exceeded"), fence.NoSpace, false, "compact the cluster's etcd, or raise its quota"},
		{apierrors.IsTooManyRequests(err), fence.Limited, true, "give the client's requests a FlowSchema with a higher level of priority"},
		{has("client rate limiter"), fence.Limited, true, "raise QPS and Burst in the client's rest.Config"},
	} {
		if refusal.is {
			return refusal.reason, &keylock.Refusal{Remedy: "k8slock: " + refusal.remedy, Temporary: refusal.temporary, Err: err}
		}
	}
	if is := new(apierrors.StatusError); errors.As(err, &is) && is.Status().Code < 500 && !apierrors.IsConflict(err) {
		return "", err
	}
	return fence.Unreachable, err
}
