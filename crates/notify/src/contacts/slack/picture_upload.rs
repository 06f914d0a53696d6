//! Upload of a picture to Slack: `files.getUploadURLExternal`, the bytes to the URL that it
//! returns, `files.completeUploadExternal`. The file is in no channel until a message shows it.
//! Slack rejects the message before it has processed the file, which `files.info` tells.

use std::time::Duration;

use http::{HeaderMap, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{SlackContact, SlackReply};
use crate::contact::DeliveryContext;
use crate::delivery_result::DeliveryError;
use crate::form_body::PICTURE_FILE;
use crate::http_client::{bearer_headers, join_url};
use crate::notification::{Notification, Picture};
use crate::text_limit::{TextCut, TextLimit};

/// For people who do not see the picture.
const PICTURE_TEXT: TextLimit = TextLimit::characters("text of the picture", 1000);
/// Waits for the file to be processed: 1.75 s in all.
const PROCESSING_WAITS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];

impl SlackContact {
    /// Id of the file with the picture of a message. It is uploaded in the first attempt.
    pub(super) async fn uploaded_picture(
        &self,
        token: &str,
        message: &Notification,
        picture: &Picture,
        context: &DeliveryContext<'_>,
        cuts: &mut Vec<TextCut>,
    ) -> Result<String, DeliveryError> {
        let text = PICTURE_TEXT.apply(&picture.alt, cuts);
        let file = match self.uploaded.find(&message.key) {
            Some(file) => file,
            None => {
                let file = self.upload(token, &picture.png, &text, context).await?;
                self.uploaded.add(&message.key, &file);
                file
            }
        };
        self.await_processing(token, &file, context).await?;
        Ok(file)
    }

    async fn upload(
        &self,
        token: &str,
        png: &[u8],
        text: &str,
        context: &DeliveryContext<'_>,
    ) -> Result<String, DeliveryError> {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let (name, length) = (encode(PICTURE_FILE), png.len());
        let form = format!("filename={name}&length={length}&alt_txt={}", encode(text));
        let ticket = self.call_form(token, "/files.getUploadURLExternal", form, context).await?;
        let ticket = ticket.confirm()?;
        let (Some(url), Some(file)) = (ticket["upload_url"].as_str(), ticket["file_id"].as_str())
        else {
            return Err(DeliveryError::temporary("Slack did not return upload_url and file_id"));
        };
        // The URL is the permission: the token is not sent there.
        let bytes = png.to_vec().into();
        let reply = context.client.send(Method::POST, url, HeaderMap::new(), bytes).await?;
        reply.accepted(context.now_ns)?;
        let body = json!({ "files": [{ "id": file, "title": text }] });
        self.call(token, "/files.completeUploadExternal", &body, context).await?.confirm()?;
        Ok(file.to_owned())
    }

    /// Waits until a message may show the file.
    async fn await_processing(
        &self,
        token: &str,
        file: &str,
        context: &DeliveryContext<'_>,
    ) -> Result<(), DeliveryError> {
        for wait in PROCESSING_WAITS.into_iter().map(Some).chain([None]) {
            let form = format!("file={}", utf8_percent_encode(file, NON_ALPHANUMERIC));
            let info = self.call_form(token, "/files.info", form, context).await?.confirm()?;
            if info["file"]["mimetype"].as_str().is_some_and(|kind| !kind.is_empty()) {
                return Ok(());
            }
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
        }
        Err(DeliveryError::temporary("Slack has not processed the picture"))
    }

    async fn call_form(
        &self,
        token: &str,
        method: &str,
        form: String,
        context: &DeliveryContext<'_>,
    ) -> Result<SlackReply, DeliveryError> {
        let url = join_url(&self.url, method);
        let kind = "application/x-www-form-urlencoded";
        let headers = bearer_headers(Some(token))?;
        let reply = context.client.post(&url, headers, kind, form.into()).await?;
        SlackReply::new(reply, context)
    }
}

/// The message with a picture below its text. A file that is rejected makes the message invalid.
pub(super) fn with_picture(message: &Value, file: &str, picture: &Picture) -> Value {
    let mut message = message.clone();
    let color = message["attachments"][0]["color"].clone();
    let alt = PICTURE_TEXT.apply(&picture.alt, &mut Vec::new());
    let image = json!({ "type": "image", "slack_file": { "id": file }, "alt_text": alt });
    let attachment = json!({ "color": color, "fallback": alt, "blocks": [image] });
    message["attachments"].as_array_mut().expect("BUG: no attachments").push(attachment);
    message
}
