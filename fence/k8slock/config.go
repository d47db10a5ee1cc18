package k8slock

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

// Config configures a Locker. The zero value, and nil, mean the defaults.
type Config struct {
	// Namespace is where the Leases are. Default: the pod's own, as the files of its service account say.
	Namespace string
	// Prefix begins the names of all Leases, and is a DNS label. Only Lockers with the same one, in one namespace,
	// exclude each other. Default: fencekit.
	Prefix string
	// TTL is how long a lock outlives its holder's last renewal, from a second to an hour. Others wait for whole
	// seconds, rounded up. Default: 10 s.
	TTL time.Duration
	// PollInterval is how often a waiting call tries again, beside a watch, and how often a holder looks whether another
	// process waits: from 1 ms to a tenth of TTL. Default: 1 s, or a tenth of TTL if that is less.
	PollInterval time.Duration
	// Epoch is that of all grants. Default: 1.
	Epoch int64
	// Label begins the holder of every grant. Default: host and process id.
	Label string
}

type engine = keylock.Locker

// Locker is a fence.Locker, fence.Elector, fence.Raiser and fence.EpochKeeper on Leases of Kubernetes. It is safe for
// concurrent use, and closed by Close.
type Locker struct{ *engine }

// leastQPS of a client: the default of 5 is what 16 locks take to be renewed, and a renewal queues behind all else.
const leastQPS = 50

// New returns a Locker on client, which is CoordinationV1() of a clientset. It makes no request. A nil cfg means the
// defaults; cfg is copied. A bad cfg is fence.ErrInvalid, and so is a client whose rest.Config has a QPS below 50: 0 is
// 5, and -1 no limit.
func New(client typed.CoordinationV1Interface, cfg *Config) (*Locker, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Namespace == "" {
		of, _ := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		c.Namespace = strings.TrimSpace(string(of))
	}
	c.Prefix, c.TTL = cmp.Or(c.Prefix, "fencekit"), cmp.Or(c.TTL, 10*time.Second)
	var api rest.Interface
	if client != nil {
		api = client.RESTClient()
	}
	wants := ""
	if none, is := api.(*rest.RESTClient); api == nil || is && none == nil {
		wants = "it takes a client of an API server; guardtest.NewLocker is for tests without one"
	} else if limit := api.GetRateLimiter(); limit != nil && limit.QPS() < leastQPS {
		wants = fmt.Sprintf("the client sends at most %v requests a second: set QPS in its rest.Config to -1, or to %d or more", limit.QPS(), leastQPS)
	}
	switch {
	case wants != "":
	case len(validation.IsDNS1123Label(c.Namespace)) > 0:
		wants = fmt.Sprintf("Config.Namespace is %q, want that of the Leases", c.Namespace)
	case len(validation.IsDNS1123Label(c.Prefix)) > 0:
		wants = fmt.Sprintf("Config.Prefix is %q, want a DNS label", c.Prefix)
	}
	if wants != "" {
		return nil, fmt.Errorf("%w: k8slock.New: %s", fence.ErrInvalid, wants)
	}
	l, err := keylock.New(&service{leases: typed.New(once{api}).Leases(c.Namespace), prefix: c.Prefix}, keylock.Config{
		Name: "k8slock", TTL: c.TTL, PollInterval: cmp.Or(c.PollInterval, min(time.Second, c.TTL/10)), Epoch: c.Epoch, Label: c.Label,
	})
	if err != nil {
		return nil, err
	}
	return &Locker{l}, nil
}
