{{- define "potstill.labels" -}}
app.kubernetes.io/name: potstill
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "potstill.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # their variables begin with the release's name, as settings do
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.images.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "potstill.container" -}}
imagePullPolicy: {{ .Values.images.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "potstill.env" -}}
- {name: POTSTILL_HOME, value: /var/lib/potstill}
- {name: POTSTILL_DATABASE_URL_FILE, value: /run/secrets/potstill/database_url}
- {name: POTSTILL_SECRET_FILE, value: /run/secrets/potstill/secret}
- {name: POTSTILL_S3_ACCESS_KEY_FILE, value: /run/secrets/potstill/s3_access_key}
- {name: POTSTILL_S3_SECRET_KEY_FILE, value: /run/secrets/potstill/s3_secret_key}
- {name: POTSTILL_BROKER_URL, value: {{ .Values.brokerUrl | quote }}}
- {name: POTSTILL_BLOB_URL, value: {{ .Values.blobUrl | quote }}}
- {name: POTSTILL_S3_REGION, value: {{ .Values.s3Region | quote }}}
{{- with .Values.s3Endpoint }}
- {name: POTSTILL_S3_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "potstill.mounts" -}}
- {name: secrets, mountPath: /run/secrets/potstill, readOnly: true}
- {name: home, mountPath: /var/lib/potstill}
- {name: tmp, mountPath: /tmp}
{{- end }}
