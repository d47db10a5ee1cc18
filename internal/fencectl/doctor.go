package fencectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/doctor"
	"github.com/fencekit/fencekit/internal/oneline"
)

type doctorFlags struct {
	etcd      lockFlags
	databases databasesFlags
	ignore    []string
	quiet     bool
}

func newDoctor(reached lockFlags) *cobra.Command {
	d := &doctorFlags{etcd: reached, databases: databasesFlags{databaseFlags: databaseFlags{timeout: 2 * time.Minute}}}
	cmd := newCommand("doctor", func(cmd *cobra.Command, _ []string) error { return d.run(cmd) })
	cmd.Flags().StringSliceVar(&d.ignore, "ignore", nil, "IDs of findings to leave out, separated by commas")
	cmd.Flags().BoolVarP(&d.quiet, "quiet", "q", false, "print findings and nothing else")
	return connected(d, cmd)
}

func (d *doctorFlags) register(flags *pflag.FlagSet) {
	d.etcd.register(flags)
	d.databases.register(flags)
}

func (d *doctorFlags) validate(cmd *cobra.Command, args []string) error {
	for _, id := range d.ignore {
		if !slices.Contains(doctor.IDs(), id) {
			return cli.UsageErrorf("--ignore: no finding has the ID %q", id)
		}
	}
	if err := d.databases.validate(cmd, args); err != nil {
		return err
	}
	return d.etcd.choose(cmd, len(d.databases.urls) > 0)
}

func (d *doctorFlags) run(cmd *cobra.Command) error {
	report, err := d.examine(cmd.Context())
	if err != nil {
		return err
	}
	report.Ignore(d.ignore)
	d.repeatFlags(cmd, report.Findings)
	report.Merge()
	if cli.AsJSON(cmd) {
		err = cli.Write(cmd, report.Findings)
	} else {
		err = writeFindings(cli.Visible(cmd.OutOrStdout()), report.Findings)
	}
	if err != nil {
		return err
	}
	if !d.quiet {
		fmt.Fprintln(cmd.ErrOrStderr(), d.summary(report))
	}
	if code := exitOf(report.Findings); code != cli.ExitOK {
		return cli.Final(code, nil)
	}
	return nil
}

func exitOf(found []doctor.Finding) int {
	for i, severity := range doctor.Severities { // the worst first
		if len(ofSeverity(found, severity)) > 0 {
			return []int{cli.ExitViolated, cli.ExitNotReady, cli.ExitInconclusive, cli.ExitOK}[i]
		}
	}
	return cli.ExitOK
}

// examine connects to all servers, and examines them. What can't be reached is a finding.
func (d *doctorFlags) examine(ctx context.Context) (doctor.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, d.databases.timeout)
	defer cancel()
	var service *doctor.Etcd
	if d.etcd.locks == inEtcd {
		var err error
		if service, err = d.openEtcd(ctx); err != nil {
			return doctor.Report{}, err
		}
		if service.Client != nil {
			defer service.Client.Close()
		}
	}
	var databases []doctor.Database
	for i, url := range d.databases.urls {
		pool, err := openOne(ctx, url)
		if pool != nil {
			defer closeSoon(pool)
		}
		db := doctor.Database{Name: d.databases.names[i], Schema: d.databases.schema, Pool: pool, Err: err}
		databases = append(databases, db)
	}
	timeout := d.databases.timeout
	limits := doctor.Limits{Statement: max(10*time.Second, timeout/12), Scan: max(20*time.Second, timeout/6)}
	return doctor.Examine(ctx, service, databases, limits), nil
}

// openEtcd returns etcd with a client, or with the reason why there is none. Its error is a
// mistake in the flags.
func (d *doctorFlags) openEtcd(ctx context.Context) (*doctor.Etcd, error) {
	config, err := d.etcd.clientConfig()
	if err != nil {
		return nil, err
	}
	service := &doctor.Etcd{Prefix: d.etcd.prefix, CertificateAuth: d.etcd.cert != ""}
	client, err := d.etcd.open(ctx, config)
	if err == nil {
		if _, err := inspect.New(client, d.etcd.prefix, inspectTimeout); err != nil {
			return nil, errors.Join(cli.UsageErrorf("%w", err), client.Close())
		}
		if err = refused(ctx, config.Endpoints); err != nil {
			_ = client.Close()
		}
	}
	if err != nil {
		service.Err = oneline.Error(d.etcd.explain(config, err))
		return service, nil
	}
	service.Client = client
	return service, nil
}

func openOne(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := databaseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1
	config.ConnConfig.ConnectTimeout = reachTimeout
	return pgxpool.NewWithConfig(ctx, config)
}

// writeFindings groups findings by severity.
func writeFindings(w io.Writer, found []doctor.Finding) error {
	var b strings.Builder
	for _, severity := range doctor.Severities {
		of := ofSeverity(found, severity)
		if len(of) > 0 {
			fmt.Fprintf(&b, "%s\n\n", strings.ToUpper(string(severity)))
		}
		for _, f := range of {
			fmt.Fprintf(&b, "  %s  %s\n", f.ID, f.Server)
			for _, line := range [][2]string{{"seen", f.Seen}, {"why", f.Why}, {"fix", f.Fix}} {
				fmt.Fprintf(&b, "    %-6s%s\n", line[0], line[1])
			}
			for _, command := range f.Run {
				fmt.Fprintf(&b, "          %s\n", command)
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func ofSeverity(found []doctor.Finding, severity doctor.Severity) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f doctor.Finding) bool { return f.Severity != severity })
}

func (d *doctorFlags) summary(r doctor.Report) string {
	servers := append([]string{"etcd was not examined"}, d.databases.names...)
	if d.etcd.locks == inEtcd {
		servers[0] = "etcd at " + strings.Join(d.etcd.endpoints, ",")
	}
	if len(servers) == 1 {
		servers = append(servers, "no database was examined")
	}
	var found []string
	for _, severity := range doctor.Severities {
		if n := len(ofSeverity(r.Findings, severity)); n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, severity))
		}
	}
	if len(found) == 0 {
		found = []string{"nothing found"}
	}
	return fmt.Sprintf("%s: %d checks, %s", strings.Join(servers, ", "), r.Checks, strings.Join(found, ", "))
}

// repeatedFlags are the flags of "doctor" that its findings' commands repeat, if they were given. Variables are
// for the commands to read themselves.
var repeatedFlags = slices.Concat([]string{"locks"}, etcdFlagNames, []string{"database-url", "schema"})

func (d *doctorFlags) repeatFlags(cmd *cobra.Command, found []doctor.Finding) {
	for _, f := range found {
		for i, command := range f.Run {
			f.Run[i] = d.repeated(cmd, command, f.Server)
		}
	}
}

func (d *doctorFlags) repeated(doctorCmd *cobra.Command, command, server string) string {
	if strings.HasPrefix(command, "ETCDCTL_") {
		return d.etcd.etcdctlVariables() + command
	}
	before, _, _ := strings.Cut(command, " -")
	words, root := strings.Fields(before), doctorCmd.Root()
	if words[0] != root.Name() {
		return command
	}
	cmd, _, err := root.Find(words[1:])
	if err != nil {
		return command
	}
	text := cmd.CommandPath()
	rest := strings.TrimPrefix(command, text)
	for _, name := range repeatedFlags {
		own, given := cmd.Flag(name), doctorCmd.Flag(name)
		if own == nil || !cli.IsGiven(given) || strings.Contains(command, " --"+name+" ") {
			continue
		}
		values := []string{given.Value.String()}
		switch name {
		case "locks":
			values = []string{d.etcd.repeated(doctorCmd)}
		case "etcd-endpoints":
			values = []string{strings.Join(d.etcd.endpoints, ",")}
		case "database-url": // that of the finding's server, or all where the command takes several
			values = nil
			for i, url := range d.databases.urls {
				if own.Value.Type() == "stringArray" || d.databases.names[i] == server {
					values = append(values, withoutPassword(url))
				}
			}
		}
		for _, value := range values {
			text += " --" + name + " " + doctor.ShellWord(value)
		}
	}
	return text + rest
}

// etcdctlVariables are the variables with which etcdctl reaches the same etcd: it takes no flag of which there
// is a variable. Where etcd has users, only root may do all that findings advise; etcdctl asks for the password.
func (e *etcdFlags) etcdctlVariables() (text string) {
	for _, f := range []struct{ name, value string }{{"CACERT", e.caCert}, {"CERT", e.cert}, {"KEY", e.key}} {
		if f.value != "" {
			text += "ETCDCTL_" + f.name + "=" + doctor.ShellWord(f.value) + " "
		}
	}
	if e.user != "" {
		text += "ETCDCTL_USER=root "
	}
	return text
}

var passwordWord = regexp.MustCompile(`(?i)\b(ssl)?password\s*=\s*('(\\.|[^'\\])*'|(\\.|\S)*)\s*`)

func withoutPassword(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return strings.TrimSpace(passwordWord.ReplaceAllString(dsn, ""))
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	if query.Has("password") || query.Has("sslpassword") {
		query.Del("password")
		query.Del("sslpassword")
		u.RawQuery = query.Encode()
	}
	return u.String()
}
