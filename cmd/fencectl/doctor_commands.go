package main

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/internal/doctor"
)

// repeatedFlags are the flags of "doctor" that its findings' commands repeat, if they were given.
var repeatedFlags = []string{"etcd-endpoints", "etcd-prefix", "etcd-cacert", "etcd-cert", "etcd-key", "etcd-user", "etcd-password-file", "database-url", "schema"}

// givenFlags returns which of them a command line gave. Variables are for the commands to read themselves.
func givenFlags(servers *pflag.FlagSet) []string {
	return slices.DeleteFunc(slices.Clone(repeatedFlags), func(name string) bool { return !servers.Lookup(name).Changed })
}

// repeatFlags gives the commands of findings the flags of "doctor" that they take.
func (d *doctorFlags) repeatFlags(found []doctor.Finding) {
	for i := range found {
		for j, command := range found[i].Run {
			found[i].Run[j] = d.repeated(command, found[i].Server)
		}
	}
}

func (d *doctorFlags) repeated(command, server string) string {
	if strings.HasPrefix(command, "ETCDCTL_") {
		return d.etcd.etcdctlVariables() + command
	}
	before, _, _ := strings.Cut(command, " -")
	words, root := strings.Fields(before), newRoot()
	if words[0] != root.Name() {
		return command
	}
	cmd, _, err := root.Find(words[1:])
	if err != nil {
		return command
	}
	path := cmd.CommandPath()
	text := path
	for _, name := range d.given {
		flag := cmd.Flag(name)
		if flag == nil || strings.Contains(command, " --"+name+" ") {
			continue
		}
		for _, value := range d.values(name, server, flag.Value.Type() == "stringArray") {
			text += " --" + name + " " + doctor.ShellWord(value)
		}
	}
	return text + strings.TrimPrefix(command, path)
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

// values returns the values of a given flag: of --database-url that of the finding's server, or all where
// a command takes several.
func (d *doctorFlags) values(name, server string, several bool) (values []string) {
	switch name {
	case "etcd-endpoints":
		return []string{strings.Join(d.etcd.endpoints, ",")}
	case "database-url":
		for i, url := range d.databases.urls {
			if several || d.databases.names[i] == server {
				values = append(values, withoutPassword(url))
			}
		}
		return values
	}
	return []string{map[string]string{
		"etcd-prefix": d.etcd.prefix, "etcd-cacert": d.etcd.caCert, "etcd-cert": d.etcd.cert, "etcd-key": d.etcd.key, "etcd-user": d.etcd.user,
		"etcd-password-file": d.etcd.passwordFile, "schema": d.databases.schema,
	}[name]}
}

// passwordWord is a password among the keywords of a DSN.
var passwordWord = regexp.MustCompile(`(?i)\b(ssl)?password\s*=\s*('(\\.|[^'\\])*'|(\\.|\S)*)\s*`)

// withoutPassword returns a DSN, which is a valid one, without its passwords.
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
