package schedo

const logBytesMax = 16 << 10

// update is progress that is not sent yet.
type update struct {
	Lease   string   `json:"lease"`
	Percent *float64 `json:"percent,omitempty"`
	Message string   `json:"message,omitempty"`
	Log     string   `json:"log,omitempty"`
}

// then returns both updates as one: later values replace earlier ones, lines of the log are joined.
func (u update) then(later update) update {
	if u.Lease == "" {
		u.Lease = later.Lease
	}
	if later.Percent != nil {
		u.Percent = later.Percent
	}
	if later.Message != "" {
		u.Message = cut(later.Message, 1_000)
	}
	if u.Log != "" && later.Log != "" {
		u.Log += "\n"
	}
	u.Log = safeText(u.Log + later.Log)
	u.Log = safeText(u.Log[max(0, len(u.Log)-logBytesMax):])
	return u
}
