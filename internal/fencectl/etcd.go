package fencectl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
)

// etcdPasswordVariable holds the password of --etcd-user. There is no such flag: each user of
// a machine can read the arguments of its processes.
const etcdPasswordVariable = "FENCEKIT_ETCD_PASSWORD"

var etcdFlagNames = []string{"etcd-endpoints", "etcd-prefix", "etcd-cacert", "etcd-cert", "etcd-key", "etcd-user", "etcd-password-file"}

type etcdFlags struct {
	endpoints    []string
	caCert       string
	cert, key    string
	user         string
	passwordFile string
	prefix       string
}

func (e *etcdFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&e.prefix, "etcd-prefix", "fencekit", "Config.Prefix of the lockers")
	e.registerRest(flags)
}

func (e *etcdFlags) registerRest(flags *pflag.FlagSet) {
	flags.StringSliceVar(&e.endpoints, "etcd-endpoints", []string{"127.0.0.1:2379"}, "all members of etcd; https:// or --etcd-cacert means TLS")
	flags.StringVar(&e.caCert, "etcd-cacert", "", "PEM file of the authority that signed the members' certificates; if not given, those of the system")
	flags.StringVar(&e.cert, "etcd-cert", "", "PEM file of the client's certificate")
	flags.StringVar(&e.key, "etcd-key", "", "PEM file of the client's private key")
	flags.StringVar(&e.user, "etcd-user", "", "user of etcd, with the password in "+etcdPasswordVariable+" or --etcd-password-file")
	flags.StringVar(&e.passwordFile, "etcd-password-file", "", "file with the password of --etcd-user")
	cli.NameVariables(flags, etcdFlagNames...)
}

const inspectTimeout = 5 * time.Second

func (e *etcdFlags) clientConfig() (clientv3.Config, error) {
	config := etcd.ClientConfig(e.endpoints...)
	if err := e.validateEndpoints(); err != nil {
		return config, err
	}
	var err error
	if config.Username, config.Password, err = e.login(); err != nil {
		return config, err
	}
	// Without a file the endpoint's scheme decides, and https trusts the system's authorities.
	files := &clientv3.SecureConfig{Cert: e.cert, Key: e.key, Cacert: e.caCert, InsecureTransport: true}
	secure, err := clientv3.NewClientConfig(&clientv3.ConfigSpec{Secure: files}, nil)
	if err != nil {
		return config, cli.UsageErrorf("--etcd-cacert, --etcd-cert, --etcd-key: %w", err)
	}
	if e.caCert != "" && secure.TLS.RootCAs.Equal(x509.NewCertPool()) {
		return config, cli.UsageErrorf("--etcd-cacert: %s has no certificate in PEM form", e.caCert)
	}
	config.TLS = secure.TLS
	return config, nil
}

// validateEndpoints rejects what the client would misunderstand: it takes the first endpoint's
// scheme for all, ignores certificates where that is http, and repeats endpoints in errors.
func (e *etcdFlags) validateEndpoints() error {
	const named = "--etcd-endpoints (FENCEKIT_ETCD_ENDPOINTS)"
	schemeOf := func(endpoint string) string {
		if scheme, _, found := strings.Cut(endpoint, "://"); found {
			return scheme
		}
		return ""
	}
	for _, endpoint := range e.endpoints {
		scheme := schemeOf(endpoint)
		switch {
		case strings.Contains(endpoint, "@"):
			return cli.UsageErrorf("%s has an @: an endpoint is http://HOST:PORT; use --etcd-user and %s", named, etcdPasswordVariable)
		case strings.TrimSpace(endpoint) != endpoint || endpoint == "":
			return cli.UsageErrorf("%s: %q is no endpoint; want http://HOST:PORT, separated by commas", named, endpoint)
		case scheme != "" && scheme != "http" && scheme != "https":
			return cli.UsageErrorf("%s: %q is neither http:// nor https://", named, endpoint)
		case scheme != schemeOf(e.endpoints[0]):
			return cli.UsageErrorf("%s: %q and %q differ in http or https", named, e.endpoints[0], endpoint)
		case scheme == "http" && e.caCert+e.cert != "":
			return cli.UsageErrorf("%s: %q speaks plain text; write https:// where --etcd-cacert or --etcd-cert is given", named, endpoint)
		}
	}
	return nil
}

// login returns user and password. The client would leave out a user without a password.
func (e *etcdFlags) login() (user, password string, err error) {
	password = os.Getenv(etcdPasswordVariable)
	if e.passwordFile != "" {
		text, err := os.ReadFile(e.passwordFile)
		if err != nil {
			return "", "", cli.UsageErrorf("--etcd-password-file: %w", err)
		}
		password = strings.TrimRight(string(text), "\r\n")
	}
	switch {
	case e.user == "" && password != "":
		return "", "", cli.UsageErrorf("there is a password for etcd, but no --etcd-user (FENCEKIT_ETCD_USER)")
	case e.user != "" && password == "":
		return "", "", cli.UsageErrorf("there is no password for --etcd-user %s: set %s or --etcd-password-file", e.user, etcdPasswordVariable)
	}
	return e.user, password, nil
}

// withEtcd treats an error of do as etcd's, unless it has an exit code already. fence.ErrInvalid is a usage error.
func (e *etcdFlags) withEtcd(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	config, err := e.clientConfig()
	if err != nil {
		return err
	}
	client, err := e.open(ctx, config)
	if err != nil {
		return e.explain(config, err)
	}
	defer client.Close()
	if err = e.ping(ctx, client); err == nil {
		err = do(ctx, client)
	}
	return e.explain(config, err)
}

// open returns a client that has logged in, if there is a user: only then it has asked etcd. A client that can't log
// in doesn't say why etcd gives no answer, but one without a user does.
func (e *etcdFlags) open(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	if config.Username != "" {
		anonymous := config
		anonymous.Username, anonymous.Password = "", ""
		client, err := clientv3.New(anonymous)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		if err := e.ping(ctx, client); hasReason(err, fence.Unreachable) {
			return nil, err
		}
	}
	return clientv3.New(config)
}

// refused returns why no request can reach etcd, if each endpoint refuses the connection. The client
// would try again until its time is up.
func refused(ctx context.Context, endpoints []string) error {
	dialer := net.Dialer{Timeout: time.Second}
	var last error
	for _, endpoint := range endpoints {
		_, address, found := strings.Cut(endpoint, "://")
		if !found {
			address = endpoint
		}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		last = err
	}
	return &fence.UnavailableError{Call: "reach etcd", Reason: fence.Unreachable, Err: last}
}

func (e *etcdFlags) ping(ctx context.Context, client *clientv3.Client) error {
	inspector, err := inspect.New(client, e.prefix, inspectTimeout)
	if err != nil {
		return err
	}
	if err := refused(ctx, client.Endpoints()); err != nil {
		return err
	}
	_, err = inspector.Epoch(ctx)
	if errors.Is(err, rpctypes.ErrPermissionDenied) || hasReason(err, fence.InvalidEpoch) {
		return nil
	}
	return err
}

func (e *etcdFlags) explain(config clientv3.Config, err error) error {
	if err == nil || errors.As(err, new(*cli.ExitError)) {
		return err
	}
	if errors.Is(err, fence.ErrInvalid) {
		return cli.UsageErrorf("%w", err)
	}
	if hasReason(err, fence.Unreachable) && config.TLS != nil && !aboutTLS(err) {
		if alert := tlsAlert(config); alert != nil {
			err = fmt.Errorf("%w (%w)", err, alert)
		}
	}
	if advice := e.advice(err); advice != "" {
		err = fmt.Errorf("%w\n%s", err, advice)
	}
	return cli.NotReady(err)
}

func (e *etcdFlags) advice(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Sprintf("Give the user's role that right, or correct --etcd-user or --etcd-prefix (%s).", e.prefix)
	case errors.Is(err, rpctypes.ErrAuthFailed), hasReason(err, fence.Denied):
		return "Check --etcd-user and its password, in " + etcdPasswordVariable + " or --etcd-password-file; or give a certificate: --etcd-cert, --etcd-key."
	case !hasReason(err, fence.Unreachable):
		return ""
	case aboutTLS(err):
		return "Check http or https in --etcd-endpoints, and the certificates: --etcd-cacert, --etcd-cert, --etcd-key."
	}
	return "Check that etcd runs, and where: --etcd-endpoints (FENCEKIT_ETCD_ENDPOINTS) is " + strings.Join(e.endpoints, ",") +
		". If the locks are in Postgres, give --locks postgres and --database-url."
}

func hasReason(err error, reason fence.UnavailableReason) bool {
	away := (*fence.UnavailableError)(nil)
	return errors.As(err, &away) && away.Reason == reason
}

// tlsAlert connects once more, to learn why the first endpoint rejects the client's certificate;
// nil if it doesn't. The server says so after the handshake, and breaks the connection, so
// that the client may not read it.
func tlsAlert(config clientv3.Config) error {
	address := strings.TrimPrefix(config.Endpoints[0], "https://")
	dialer := &net.Dialer{Timeout: config.DialTimeout}
	settings := config.TLS.Clone()
	settings.NextProtos = []string{"h2"}
	conn, err := tls.DialWithDialer(dialer, "tcp", address, settings)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(config.DialTimeout))
	_, err = conn.Read(make([]byte, 1))
	if alert := (*net.OpError)(nil); errors.As(err, &alert) && alert.Op == "remote error" {
		return err
	}
	return nil
}

// aboutTLS reports whether client and server don't agree on TLS. gRPC has no type for that. A
// server that speaks TLS breaks a plain connection before it has said anything.
func aboutTLS(err error) bool {
	text := err.Error()
	for _, sign := range []string{"tls: ", "http or https?", "error reading server preface"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
