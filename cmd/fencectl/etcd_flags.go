package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
)

// etcdPasswordVariable holds the password of --etcd-user. There is no such flag: each user of
// a machine can read the arguments of its processes.
const etcdPasswordVariable = "FENCEKIT_ETCD_PASSWORD"

// etcdFlags are the flags of the commands that use etcd.
type etcdFlags struct {
	endpoints    []string
	caCert       string
	cert, key    string
	user         string
	passwordFile string
	prefix       string
}

func (e *etcdFlags) register(flags *pflag.FlagSet) {
	own := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	own.StringVar(&e.prefix, "etcd-prefix", "fencekit", "Config.Prefix of the lockers")
	e.registerRest(own)
	flags.AddFlagSet(own)
}

// registerRest adds the flags but --etcd-prefix, and names the variables of all.
func (e *etcdFlags) registerRest(own *pflag.FlagSet) {
	own.StringSliceVar(&e.endpoints, "etcd-endpoints", []string{"127.0.0.1:2379"}, "all members of etcd; https:// or --etcd-cacert means TLS")
	own.StringVar(&e.caCert, "etcd-cacert", "", "PEM file of the authority that signed the members' certificates; if empty, those of the system")
	own.StringVar(&e.cert, "etcd-cert", "", "PEM file of the client's certificate")
	own.StringVar(&e.key, "etcd-key", "", "PEM file of the client's private key")
	own.StringVar(&e.user, "etcd-user", "", "user of etcd, with the password in "+etcdPasswordVariable+" or --etcd-password-file")
	own.StringVar(&e.passwordFile, "etcd-password-file", "", "file with the password of --etcd-user")
	cli.NameVariables(own)
}

// lockerConfig is the configuration of what locks for these flags.
func (e *etcdFlags) lockerConfig() *etcd.Config { return &etcd.Config{Prefix: e.prefix} }

// inspectTimeout bounds each request of what reads locks.
const inspectTimeout = 5 * time.Second

// inspector reads the locks for these flags. Its errors are usage errors.
func (e *etcdFlags) inspector(client *clientv3.Client) (*inspect.Inspector, error) {
	return inspect.New(client, e.prefix, inspectTimeout)
}

// clientConfig returns the configuration of the client. Its errors are usage errors.
func (e *etcdFlags) clientConfig() (clientv3.Config, error) {
	config := etcd.ClientConfig(e.endpoints...)
	if e.prefix == "" { // a script's unset variable, not a wish for the default
		return config, cli.UsageErrorf("--etcd-prefix is empty: give a prefix, or leave the flag out")
	}
	if err := e.validateEndpoints(); err != nil {
		return config, err
	}
	var err error
	if config.Username, config.Password, err = e.login(); err != nil {
		return config, err
	}
	config.TLS, err = e.tls()
	return config, err
}

// validateEndpoints rejects what the client would misunderstand: it takes the first endpoint's
// scheme for all, ignores certificates where that is http, and repeats endpoints in errors.
func (e *etcdFlags) validateEndpoints() error {
	const named = "--etcd-endpoints (FENCEKIT_ETCD_ENDPOINTS)"
	if len(e.endpoints) == 0 {
		return cli.UsageErrorf("%s is empty: want http://HOST:PORT, separated by commas", named)
	}
	first := ""
	for i, endpoint := range e.endpoints {
		scheme, _, found := strings.Cut(endpoint, "://")
		if !found {
			scheme = ""
		}
		if i == 0 {
			first = scheme
		}
		switch {
		case strings.Contains(endpoint, "@"):
			return cli.UsageErrorf("%s has an @: an endpoint is http://HOST:PORT; use --etcd-user and %s", named, etcdPasswordVariable)
		case strings.TrimSpace(endpoint) != endpoint || endpoint == "":
			return cli.UsageErrorf("%s: %q is no endpoint; want http://HOST:PORT, separated by commas", named, endpoint)
		case scheme != "" && scheme != "http" && scheme != "https":
			return cli.UsageErrorf("%s: %q is neither http:// nor https://", named, endpoint)
		case scheme != first:
			return cli.UsageErrorf("%s: %q and %q differ in http or https", named, e.endpoints[0], endpoint)
		case scheme == "http" && e.usesTLS():
			return cli.UsageErrorf("%s: %q speaks plain text; write https:// where --etcd-cacert or --etcd-cert is given", named, endpoint)
		}
	}
	return nil
}

func (e *etcdFlags) usesTLS() bool { return e.caCert != "" || e.cert != "" || e.key != "" }

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

// tls returns nil where no file is given: then the endpoint's scheme decides, and https trusts
// the system's authorities.
func (e *etcdFlags) tls() (*tls.Config, error) {
	if !e.usesTLS() {
		return nil, nil
	}
	if (e.cert == "") != (e.key == "") {
		return nil, cli.UsageErrorf("--etcd-cert and --etcd-key belong together: give both")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.caCert != "" {
		pem, err := os.ReadFile(e.caCert)
		if err != nil {
			return nil, cli.UsageErrorf("--etcd-cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.UsageErrorf("--etcd-cacert: %s has no certificate in PEM form", e.caCert)
		}
	}
	if e.cert != "" {
		pair, err := tls.LoadX509KeyPair(e.cert, e.key)
		if err != nil {
			return nil, cli.UsageErrorf("--etcd-cert and --etcd-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
