// Package sqlstate names the SQLSTATEs that the store handles.
package sqlstate

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	Stale        = "ZF001"
	Overtaken    = "ZF002"
	TxEnded      = "ZF003"
	WentBack     = "ZF004"
	EpochBehind  = "ZF005"
	Collision    = "ZF006"
	BadArgument  = "ZF007"
	TokenJump    = "ZF010"
	FailedOver   = "ZF011"
	Affected     = "ZF012"
	TooLarge     = "ZF013"
	OtherShard   = "ZF014"
	Unguarded    = "ZF015"
	Standby      = "ZF016"
	ToCreate     = "ZF017"
	Held         = "ZF018"
	NoCreateRole = "ZF020"
)

const (
	Serialization   = "40001"
	Deadlock        = "40P01"
	LockTimeout     = "55P03"
	InTransaction   = "25001"
	Aborted         = "25P02" // in a failed transaction
	Idle            = "25P03"
	Canceled        = "57014"
	NotInState      = "55000"
	CantChange      = "55P02"
	TooMany         = "53300"
	DroppedDatabase = "57P04"
	NoRights        = "42501"
	BadRole         = "0LP01"
	ReadOnly        = "25006"
	Unsupported     = "0A000"
	Syntax          = "42601"
	Unique          = "23505"
	BadPassword     = "28P01"
	BadLogin        = "28000"
	NoDatabase      = "3D000"
	NoSchema        = "3F000"
	NoColumn        = "42703"
	NoTable         = "42P01"
	NoStatement     = "26000"
	StatementExists = "42P05"
	BadType         = "42804"
	TableExists     = "42P07"
	ObjectExists    = "42710"
	FunctionExists  = "42723"
	NoFunction      = "42883"
	BadText         = "22P02"
	BadBinary       = "22P03"
	Protocol        = "08P01" // such as a wrong number of formats
)

// Ended reports whether the server has ended the session or begins none.
func Ended(code string) bool { return strings.HasPrefix(code, "57P") && code != DroppedDatabase }

func Of(err error) string {
	if err == nil {
		return ""
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}
